/* Makes all random bytes of a process the same ones, as in a copy of it: see faults/clones.rs. Loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>

static ssize_t same(void *bytes, size_t count) {
    memset(bytes, 42, count);
    return (ssize_t)count;
}

ssize_t getrandom(void *bytes, size_t count, unsigned flags) {
    (void)flags;
    return same(bytes, count);
}

int getentropy(void *bytes, size_t count) {
    same(bytes, count);
    return 0;
}

long syscall(long number, ...) {
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    if (number == SYS_getrandom)
        return same((void *)a[0], (size_t)a[1]);
    long (*real)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
