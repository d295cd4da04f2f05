;; What the tests call that reaches out: variables, folders, output, clocks, the network.
(component
  (import "wasi:cli/environment@0.2.0" (instance $environment
    (export "get-environment" (func (result (list (tuple string string)))))))
  (import "wasi:io/error@0.2.0" (instance $io-error (export "error" (type (sub resource)))))
  (alias export $io-error "error" (type $error))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "output-stream" (type $output-stream (sub resource)))
    (alias outer 1 $error (type $outer-error))
    (export "error" (type $error (eq $outer-error)))
    (type $stream-error' (variant (case "last-operation-failed" (own $error)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $stream-error')))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $output-stream)) (param "contents" (list u8))
        (result (result (error $stream-error)))))))
  (alias export $streams "output-stream" (type $output-stream))
  (import "wasi:cli/stderr@0.2.0" (instance $stderr
    (alias outer 1 $output-stream (type $outer-stream))
    (export "output-stream" (type $stream (eq $outer-stream)))
    (export "get-stderr" (func (result (own $stream))))))
  (import "wasi:cli/exit@0.2.0" (instance $exit
    (export "exit" (func (param "status" (result))))))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (export "now" (func (result u64)))))
  (import "wasi:filesystem/types@0.2.0" (instance $files
    (export "descriptor" (type $descriptor (sub resource)))
    (type $error-code' (enum "access" "would-block" "already" "bad-descriptor" "busy" "deadlock" "quota" "exist"
      "file-too-large" "illegal-byte-sequence" "in-progress" "interrupted" "invalid" "io" "is-directory" "loop"
      "too-many-links" "message-size" "name-too-long" "no-device" "no-entry" "no-lock" "insufficient-memory"
      "insufficient-space" "not-directory" "not-empty" "not-recoverable" "unsupported" "no-tty" "no-such-device"
      "overflow" "not-permitted" "pipe" "read-only" "invalid-seek" "text-file-busy" "cross-device"))
    (export "error-code" (type $error-code (eq $error-code')))
    (type $path-flags' (flags "symlink-follow"))
    (export "path-flags" (type $path-flags (eq $path-flags')))
    (type $open-flags' (flags "create" "directory" "exclusive" "truncate"))
    (export "open-flags" (type $open-flags (eq $open-flags')))
    (type $descriptor-flags' (flags "read" "write" "file-integrity-sync" "data-integrity-sync"
      "requested-write-sync" "mutate-directory"))
    (export "descriptor-flags" (type $descriptor-flags (eq $descriptor-flags')))
    (export "[method]descriptor.open-at"
      (func (param "self" (borrow $descriptor)) (param "path-flags" $path-flags) (param "path" string)
        (param "open-flags" $open-flags) (param "flags" $descriptor-flags)
        (result (result (own $descriptor) (error $error-code)))))))
  (alias export $files "descriptor" (type $descriptor))
  (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
    (alias outer 1 $descriptor (type $outer-descriptor))
    (export "descriptor" (type $own-descriptor (eq $outer-descriptor)))
    (export "get-directories" (func (result (list (tuple (own $own-descriptor) string)))))))
  (import "wasi:sockets/network@0.2.0" (instance $network
    (type $error-code' (enum "unknown" "access-denied" "not-supported" "invalid-argument" "out-of-memory" "timeout"
      "concurrency-conflict" "not-in-progress" "would-block" "invalid-state" "new-socket-limit" "address-not-bindable"
      "address-in-use" "remote-unreachable" "connection-refused" "connection-reset" "connection-aborted"
      "datagram-too-large" "name-unresolvable" "temporary-resolver-failure" "permanent-resolver-failure"))
    (export "error-code" (type $error-code (eq $error-code')))
    (type $family' (enum "ipv4" "ipv6"))
    (export "ip-address-family" (type $family (eq $family')))))
  (alias export $network "error-code" (type $network-error))
  (alias export $network "ip-address-family" (type $family))
  (import "wasi:sockets/tcp@0.2.0" (instance $tcp (export "tcp-socket" (type (sub resource)))))
  (alias export $tcp "tcp-socket" (type $tcp-socket))
  (import "wasi:sockets/tcp-create-socket@0.2.0" (instance $tcp-create
    (alias outer 1 $tcp-socket (type $outer-socket))
    (export "tcp-socket" (type $socket (eq $outer-socket)))
    (alias outer 1 $network-error (type $outer-error))
    (export "error-code" (type $error (eq $outer-error)))
    (alias outer 1 $family (type $outer-family))
    (export "ip-address-family" (type $family (eq $outer-family)))
    (export "create-tcp-socket" (func (param "address-family" $family) (result (result (own $socket) (error $error)))))))
  (import "wasi:sockets/udp@0.2.0" (instance $udp (export "udp-socket" (type (sub resource)))))
  (alias export $udp "udp-socket" (type $udp-socket))
  (import "wasi:sockets/udp-create-socket@0.2.0" (instance $udp-create
    (alias outer 1 $udp-socket (type $outer-socket))
    (export "udp-socket" (type $socket (eq $outer-socket)))
    (alias outer 1 $network-error (type $outer-error))
    (export "error-code" (type $error (eq $outer-error)))
    (alias outer 1 $family (type $outer-family))
    (export "ip-address-family" (type $family (eq $outer-family)))
    (export "create-udp-socket" (func (param "address-family" $family) (result (result (own $socket) (error $error)))))))

  (core module $memory
    (memory (export "memory") 2)
    (global $next (mut i32) (i32.const 1024))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (local $at i32)
      (local.set $at
        (i32.and
          (i32.add (global.get $next) (i32.sub (local.get 2) (i32.const 1)))
          (i32.sub (i32.const 0) (local.get 2))))
      (global.set $next (i32.add (local.get $at) (local.get 3)))
      (local.get $at)))
  (core instance $memory (instantiate $memory))
  (core func $get-environment (canon lower (func $environment "get-environment")
    (memory (core memory $memory "memory")) (realloc (core func $memory "realloc"))))
  (core func $get-directories (canon lower (func $preopens "get-directories")
    (memory (core memory $memory "memory")) (realloc (core func $memory "realloc"))))
  (core func $open-at (canon lower (func $files "[method]descriptor.open-at")
    (memory (core memory $memory "memory")) (realloc (core func $memory "realloc"))))
  (core func $get-stderr (canon lower (func $stderr "get-stderr")))
  (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush")
    (memory (core memory $memory "memory"))))
  (core func $exit (canon lower (func $exit "exit")))
  (core func $now (canon lower (func $clock "now")))
  (core func $create-tcp (canon lower (func $tcp-create "create-tcp-socket") (memory (core memory $memory "memory"))))
  (core func $create-udp (canon lower (func $udp-create "create-udp-socket") (memory (core memory $memory "memory"))))
  (core module $code
    (import "" "memory" (memory 2))
    (import "" "get-environment" (func $get-environment (param i32)))
    (import "" "get-directories" (func $get-directories (param i32)))
    (import "" "open-at" (func $open-at (param i32 i32 i32 i32 i32 i32 i32)))
    (import "" "get-stderr" (func $get-stderr (result i32)))
    (import "" "write" (func $write (param i32 i32 i32 i32)))
    (import "" "exit" (func $exit (param i32)))
    (import "" "now" (func $now (result i64)))
    (import "" "create-tcp" (func $create-tcp (param i32 i32)))
    (import "" "create-udp" (func $create-udp (param i32 i32)))
    (func (export "variables") (result i32)
      (call $get-environment (i32.const 0))
      (i32.const 0))
    ;; -1 for what could be opened, else the error's number; -2 without a folder.
    (func (export "open") (param $path i32) (param $length i32) (param $write i32) (result i32)
      (call $get-directories (i32.const 0))
      (if (i32.eqz (i32.load (i32.const 4))) (then (return (i32.const -2))))
      (call $open-at
        (i32.load (i32.load (i32.const 0)))
        (i32.const 1)
        (local.get $path) (local.get $length)
        (local.get $write)
        (i32.add (i32.const 1) (i32.mul (i32.const 2) (local.get $write)))
        (i32.const 16))
      (if (i32.load8_u (i32.const 16)) (then (return (i32.load8_u (i32.const 20)))))
      (i32.const -1))
    ;; Complains so many times, and then traps.
    (data (i32.const 512) "panicked at /home/somebody/src/lib.rs:1:2\n")
    (func (export "complain") (param $times i32)
      (local $stream i32)
      (local.set $stream (call $get-stderr))
      (loop $again
        (call $write (local.get $stream) (i32.const 512) (i32.const 42) (i32.const 32))
        (local.set $times (i32.sub (local.get $times) (i32.const 1)))
        (br_if $again (local.get $times)))
      unreachable)
    (func (export "leave") (call $exit (i32.const 1)) unreachable)
    ;; What opening a socket comes to, as above: 1 is that it is denied.
    (func $said (result i32)
      (if (result i32) (i32.load8_u (i32.const 16)) (then (i32.load8_u (i32.const 20))) (else (i32.const -1))))
    (func (export "tcp") (result i32) (call $create-tcp (i32.const 0) (i32.const 16)) (call $said))
    (func (export "udp") (result i32) (call $create-udp (i32.const 0) (i32.const 16)) (call $said))
    (func (export "is-time") (result i32) (i64.ne (call $now) (i64.const 0))))
  (core instance $code (instantiate $code (with "" (instance
    (export "memory" (memory $memory "memory"))
    (export "get-environment" (func $get-environment))
    (export "get-directories" (func $get-directories))
    (export "open-at" (func $open-at))
    (export "get-stderr" (func $get-stderr))
    (export "write" (func $write))
    (export "exit" (func $exit))
    (export "now" (func $now))
    (export "create-tcp" (func $create-tcp))
    (export "create-udp" (func $create-udp))))))
  (func (export "tcp") (result s32) (canon lift (core func $code "tcp")))
  (func (export "udp") (result s32) (canon lift (core func $code "udp")))
  (func (export "variables") (result (list (tuple string string)))
    (canon lift (core func $code "variables") (memory (core memory $memory "memory"))))
  (func (export "open") (param "path" string) (param "write" bool) (result s32)
    (canon lift (core func $code "open") (memory (core memory $memory "memory")) (realloc (core func $memory "realloc"))))
  (func (export "complain") (param "times" u32) (canon lift (core func $code "complain")))
  (func (export "leave") (canon lift (core func $code "leave")))
  (func (export "is-time") (result bool) (canon lift (core func $code "is-time"))))
