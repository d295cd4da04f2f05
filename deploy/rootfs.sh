#!/bin/sh
# The files of the image: the program, and the names of its user.
#
#   deploy/rootfs.sh PROGRAM FOLDER
set -eu
program=$1
root=$2

rm -rf "$root"
mkdir -p "$root/etc" "$root/tmp" "$root/data"
cp "$program" "$root/longshore"
printf 'root:x:0:0:root:/:/sbin/nologin\nlongshore:x:65532:65532:longshore:/:/sbin/nologin\n' > "$root/etc/passwd"
printf 'root:x:0:\nlongshore:x:65532:\n' > "$root/etc/group"
printf 'hosts: files dns\n' > "$root/etc/nsswitch.conf"
# Any user may run it, as OpenShift wants.
chmod 755 "$root/longshore"
chmod 1777 "$root/tmp"
chmod 777 "$root/data"
