#!/bin/sh
# What the linker is told for the smallest program: relocations in their short form, and functions that came out alike
# kept once. For the linker that the toolchain brings along on x86-64; elsewhere its own defaults hold.
case "$(uname -m)" in
x86_64)
    printf -- '-C link-arg=-Wl,-z,pack-relative-relocs -C link-arg=-Wl,--icf=all -C link-arg=-Wl,-O2\n'
    ;;
esac
