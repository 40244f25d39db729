/* Makes the random bytes of a process the same ones each time it is run: all alike, as the worst case of a copy of it (see
 * faults/clones.rs), or those of the seed in SAME_RANDOMNESS (see simulation/). Loaded by LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>

static ssize_t same(void *bytes, size_t count) {
    static uint64_t state;
    const char *seed = getenv("SAME_RANDOMNESS");
    memset(bytes, 42, count);
    if (seed == NULL)
        return (ssize_t)count;
    /* SplitMix64, a byte of each number. */
    for (size_t i = 0; i < count; i++) {
        uint64_t mixed = (state += 0x9e3779b97f4a7c15) ^ strtoull(seed, NULL, 10);
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
        ((unsigned char *)bytes)[i] = (unsigned char)(mixed >> 56);
    }
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
