# shellcheck shell=bash
# Trees of files that images are made of without any registry: for tests/docker and tests/image to read.

# Copies programs and the libraries that they need.
with() {
    local root=$1 program path
    for program in "${@:2}"; do
        path=$(PATH=/usr/bin:/bin:/usr/sbin:/sbin:$PATH type -P "$program") || continue
        cp -L --parents "$path" "$root"
        ldd "$path" 2>/dev/null | grep -o '/[^ ]*' | xargs -r -I{} cp -L --parents {} "$root"
    done
}

# A static busybox and its names.
tree() {
    mkdir -p "$1"/{bin,etc,tmp,proc,dev,sys,var/tmp,usr/bin,usr/lib,lib64}
    echo 'build:x:20000:20000:build:/home/build:/bin/sh' >"$1/etc/passwd"
    cp "$(command -v busybox)" "$1/bin/busybox"
    local applet
    for applet in $(busybox --list); do
        [ "$applet" = busybox ] || ln -sf busybox "$1/bin/$applet"
    done
}
