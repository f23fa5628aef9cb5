/* Loaded before the C library into one process (LD_PRELOAD). Records what the process changes and syncs below the
 * directory $RECORDED_ROOT, in the order in which it happens, in the file $RECORDED_LOG. The first eight bytes of the file
 * $RECORDED_COUNT have the number of records. `recorded_disk.py` reads all that. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATE = 1, MKDIR, WRITE, TRUNCATE, RENAME, UNLINK, RMDIR, SYNC, SYNC_ALL, SYNCED };

struct head {
    uint32_t kind, path_bytes, other_bytes, data_bytes;
    uint64_t inode;  /* of the file; the number of the record of its begin for SYNCED */
    uint64_t number; /* the position of a write, the new size, ... */
};

static const char *root;
static size_t root_bytes;
static int out = -1;
static dev_t device;
static volatile uint64_t *count;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("RECORDED_LOG"), *counts = getenv("RECORDED_COUNT");
    struct stat status;
    root = getenv("RECORDED_ROOT");
    if (!root || !path || !counts || stat(root, &status)) return;
    root_bytes = strlen(root);
    device = status.st_dev;
    int page = syscall(SYS_openat, AT_FDCWD, counts, O_RDWR | O_CLOEXEC, 0);
    count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    syscall(SYS_close, page);
    if (count == MAP_FAILED) abort();
    out = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC, 0);
    if (out < 0) abort();
}

/* Whether a path is below the root; `relative` gets the rest of it. */
static int is_below(const char *path, const char **relative) {
    if (out < 0 || strncmp(path, root, root_bytes) || (path[root_bytes] != '/' && path[root_bytes])) return 0;
    *relative = path + root_bytes + (path[root_bytes] == '/');
    return 1;
}

/* The caller has the turn. Returns the number of the record. */
static uint64_t record(int kind, const char *path, const char *other, uint64_t inode, uint64_t number,
                       const struct iovec *data, int chunks, size_t bytes) {
    struct iovec all[3 + (chunks ? chunks : 1)];
    struct head head = {kind, strlen(path), strlen(other), bytes, inode, number};
    all[0] = (struct iovec){&head, sizeof head};
    all[1] = (struct iovec){(void *)path, head.path_bytes};
    all[2] = (struct iovec){(void *)other, head.other_bytes};
    int last = 3;
    for (size_t left = bytes; left && chunks--; data++, last++) {
        all[last] = (struct iovec){data->iov_base, data->iov_len < left ? data->iov_len : left};
        left -= all[last].iov_len;
    }
    if (syscall(SYS_writev, out, all, last) != (ssize_t)(sizeof head + head.path_bytes + head.other_bytes + bytes)) abort();
    return __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
}

#define NEXT(name, result, declared)                            \
    static result(*next) declared;                              \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

/* The inode of an open regular file below the root; 0 for anything else. */
static uint64_t file_of(int fd) {
    struct stat status;
    char link[64], path[PATH_MAX];
    const char *relative;
    if (out < 0 || fd == out || fstat(fd, &status) || status.st_dev != device || !S_ISREG(status.st_mode)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return is_below(path, &relative) ? status.st_ino : 0;
}

static int opened(int (*next)(int, const char *, int, ...), int folder, const char *path, int flags, mode_t mode) {
    const char *relative;
    struct stat before, after;
    if (!(flags & (O_CREAT | O_TRUNC)) || folder != AT_FDCWD || !is_below(path, &relative)) return next(folder, path, flags, mode);
    pthread_mutex_lock(&turn);
    int existed = !stat(path, &before), fd = next(folder, path, flags, mode);
    if (fd >= 0 && !fstat(fd, &after)) {
        if (!existed) record(CREATE, relative, "", after.st_ino, 0, NULL, 0, 0);
        else if (flags & O_TRUNC) record(TRUNCATE, "", "", after.st_ino, 0, NULL, 0, 0);
    }
    pthread_mutex_unlock(&turn);
    return fd;
}

#define OPEN(name, at, declared, folder)                                                \
    int name declared {                                                                 \
        NEXT(at, int, (int, const char *, int, ...));                                   \
        va_list more;                                                                   \
        va_start(more, flags);                                                          \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;         \
        va_end(more);                                                                   \
        return opened(next, folder, path, flags, mode);                                 \
    }

OPEN(open, openat, (const char *path, int flags, ...), AT_FDCWD)
OPEN(open64, openat64, (const char *path, int flags, ...), AT_FDCWD)
OPEN(openat, openat, (int at, const char *path, int flags, ...), at)
OPEN(openat64, openat64, (int at, const char *path, int flags, ...), at)

#define WRITES(name, declared, given, chunks, chunk_count, position)                    \
    ssize_t name declared {                                                             \
        NEXT(name, ssize_t, declared);                                                  \
        uint64_t inode = file_of(fd);                                                   \
        if (!inode) return next given;                                                  \
        pthread_mutex_lock(&turn);                                                      \
        uint64_t at = position;                                                         \
        ssize_t written = next given;                                                   \
        if (written > 0) record(WRITE, "", "", inode, at, chunks, chunk_count, written); \
        pthread_mutex_unlock(&turn);                                                    \
        return written;                                                                 \
    }

#define ONE (&(struct iovec){(void *)data, size})

WRITES(write, (int fd, const void *data, size_t size), (fd, data, size), ONE, 1, lseek(fd, 0, SEEK_CUR))
WRITES(pwrite, (int fd, const void *data, size_t size, off_t to), (fd, data, size, to), ONE, 1, to)
WRITES(pwrite64, (int fd, const void *data, size_t size, off64_t to), (fd, data, size, to), ONE, 1, to)
WRITES(pwritev64, (int fd, const struct iovec *data, int chunks, off64_t to), (fd, data, chunks, to), data, chunks, to)
WRITES(pwritev64v2, (int fd, const struct iovec *data, int chunks, off64_t to, int flags), (fd, data, chunks, to, flags),
       data, chunks, to)

#define TRUNCATES(name, type)                                                           \
    int name(int fd, type size) {                                                       \
        NEXT(name, int, (int, type));                                                   \
        uint64_t inode = file_of(fd);                                                   \
        if (!inode) return next(fd, size);                                              \
        pthread_mutex_lock(&turn);                                                      \
        int status = next(fd, size);                                                    \
        if (!status) record(TRUNCATE, "", "", inode, size, NULL, 0, 0);                 \
        pthread_mutex_unlock(&turn);                                                    \
        return status;                                                                  \
    }

TRUNCATES(ftruncate, off_t)
TRUNCATES(ftruncate64, off64_t)

int mkdir(const char *path, mode_t mode) {
    NEXT(mkdir, int, (const char *, mode_t));
    const char *relative;
    if (!is_below(path, &relative)) return next(path, mode);
    pthread_mutex_lock(&turn);
    int status = next(path, mode);
    if (!status) record(MKDIR, relative, "", 0, 0, NULL, 0, 0);
    pthread_mutex_unlock(&turn);
    return status;
}

int rename(const char *old, const char *new) {
    NEXT(rename, int, (const char *, const char *));
    const char *from, *to;
    if (!is_below(old, &from) || !is_below(new, &to)) return next(old, new);
    pthread_mutex_lock(&turn);
    int status = next(old, new);
    if (!status) record(RENAME, from, to, 0, 0, NULL, 0, 0);
    pthread_mutex_unlock(&turn);
    return status;
}

/* A path, which may be relative to an open folder. */
static const char *absolute(int folder, const char *path, char *whole) {
    char link[64];
    if (folder == AT_FDCWD || path[0] == '/') return path;
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t size = readlink(link, whole, PATH_MAX);
    if (size < 0 || size + 1 + strlen(path) >= 2 * PATH_MAX) return path;
    whole[size] = '/';
    strcpy(whole + size + 1, path);
    return whole;
}

static int removed(int (*next)(int, const char *, int), int folder, const char *path, int flags) {
    char whole[2 * PATH_MAX];
    const char *relative;
    if (!is_below(absolute(folder, path, whole), &relative)) return next(folder, path, flags);
    pthread_mutex_lock(&turn);
    int status = next(folder, path, flags);
    if (!status) record(flags & AT_REMOVEDIR ? RMDIR : UNLINK, relative, "", 0, 0, NULL, 0, 0);
    pthread_mutex_unlock(&turn);
    return status;
}

#define REMOVES(name, declared, folder, flags)                  \
    int name declared {                                         \
        NEXT(unlinkat, int, (int, const char *, int));          \
        return removed(next, folder, path, flags);              \
    }

REMOVES(unlinkat, (int folder, const char *path, int flags), folder, flags)
REMOVES(unlink, (const char *path), AT_FDCWD, 0)
REMOVES(rmdir, (const char *path), AT_FDCWD, AT_REMOVEDIR)

/* A sync covers what was recorded before its begin, once its end is recorded. */
static int synced(int (*next)(int), int fd, int is_all) {
    char link[64], path[PATH_MAX];
    const char *relative;
    struct stat status;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0 || fstat(fd, &status)) return next(fd);
    path[size] = 0;
    if (!is_below(path, &relative)) return next(fd);
    int is_folder = S_ISDIR(status.st_mode);
    pthread_mutex_lock(&turn);
    uint64_t begun = record(is_all ? SYNC_ALL : SYNC, is_folder ? relative : "", "", is_folder ? 0 : status.st_ino, 0, NULL, 0, 0);
    pthread_mutex_unlock(&turn);
    int result = next(fd);
    pthread_mutex_lock(&turn);
    if (!result) record(SYNCED, "", "", begun, 0, NULL, 0, 0);
    pthread_mutex_unlock(&turn);
    return result;
}

#define SYNCS(name, is_all)                     \
    int name(int fd) {                          \
        NEXT(name, int, (int));                 \
        return synced(next, fd, is_all);        \
    }

SYNCS(fsync, 0)
SYNCS(fdatasync, 0)
SYNCS(syncfs, 1)
