/* Loaded before the C library into one process (LD_PRELOAD). Makes the calls that wait for a disk slower, lets them
 * hang, or lets them fail. The first page of the file $HELD_DISK says how, and counts; `held_disk.py` writes it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { FSYNC = 1, FDATASYNC = 2, SYNCFS = 4, FTRUNCATE = 8, UNLINK = 16, RENAME = 32 };

struct control {
    int32_t calls;     /* the calls that are held: a sum of the values above */
    int32_t ms;        /* each takes so much longer */
    int32_t hangs;     /* while this is 1, none of them ends */
    int32_t error;     /* they fail with this error ... */
    int32_t failures;  /* ... so many times; -1: always */
    int32_t held;      /* the number of calls that wait now */
    int32_t made;      /* the number of calls so far */
    int32_t made_main; /* those on the process's first thread */
};

static struct control *control;

__attribute__((constructor)) static void find_control(void) {
    const char *path = getenv("HELD_DISK");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) control = page;
}

static void wait_ms(int32_t ms) {
    struct timespec left = {ms / 1000, (ms % 1000) * 1000000L};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

/* 0, or -1 with errno: the call must not be made. */
static int hold(int call) {
    if (!control || !(control->calls & call)) return 0;
    __atomic_add_fetch(&control->made, 1, __ATOMIC_SEQ_CST);
    if (syscall(SYS_gettid) == getpid()) __atomic_add_fetch(&control->made_main, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&control->held, 1, __ATOMIC_SEQ_CST);
    if (control->ms) wait_ms(control->ms);
    while (__atomic_load_n(&control->hangs, __ATOMIC_SEQ_CST)) wait_ms(2);
    __atomic_sub_fetch(&control->held, 1, __ATOMIC_SEQ_CST);
    int32_t failures = __atomic_load_n(&control->failures, __ATOMIC_SEQ_CST);
    while (failures > 0 && !__atomic_compare_exchange_n(&control->failures, &failures, failures - 1, 0,
                                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    if (failures) {
        errno = control->error;
        return -1;
    }
    return 0;
}

#define HELD(call, name, declared, given)                    \
    int name declared {                                      \
        static int(*next) declared;                          \
        if (!next) next = dlsym(RTLD_NEXT, #name);           \
        return hold(call) ? -1 : next given;                 \
    }

HELD(FSYNC, fsync, (int fd), (fd))
HELD(FDATASYNC, fdatasync, (int fd), (fd))
HELD(SYNCFS, syncfs, (int fd), (fd))
HELD(FTRUNCATE, ftruncate, (int fd, off_t size), (fd, size))
HELD(FTRUNCATE, ftruncate64, (int fd, off64_t size), (fd, size))
HELD(UNLINK, unlink, (const char *path), (path))
HELD(UNLINK, unlinkat, (int folder, const char *path, int flags), (folder, path, flags))
HELD(RENAME, rename, (const char *old, const char *new), (old, new))
HELD(RENAME, renameat, (int from, const char *old, int to, const char *new), (from, old, to, new))
