/*
 * Loaded before the C library into the program under test. Writes one ordered record of what reaches the
 * disk and what leaves on sockets, and makes syncs and writes slow, stuck or failing on demand.
 *
 * COFFERDAM_SHIM names a folder with the files `record` (ours to append to), `control` (rules, replaced as a
 * whole by the test), `clock` (milliseconds to add to the date) and `frozen` (made when something is stuck).
 * COFFERDAM_SHIM_ROOT is the folder whose files count.
 *
 * Order: a write is recorded when it has been made, a sync before it begins and after it has ended, an answer
 * before it leaves. So what the record shows before the begin of a sync was covered by it, and an answer that
 * the record shows after the end of a sync was sent after it.
 *
 * Renames made without the C library are not seen; the listing of a folder in the record of each of its syncs
 * makes up for that.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define RULES_MAX 16
#define LISTING_MAX 65536

enum action { DELAY, ERROR, FREEZE, SPACE };

struct rule {
    char op[8];
    char part[64];
    enum action action;
    long argument;
    long from;
    long seen;
};

static char root[PATH_MAX];
static size_t root_length;
static char record_path[PATH_MAX], control_path[PATH_MAX], clock_path[PATH_MAX], frozen_path[PATH_MAX];
static int record_fd = -1;
static pthread_mutex_t rules_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[RULES_MAX];
static int rules_count;
static struct timespec control_time;
static ino_t control_ino;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

/* ---- the record ---- */

struct frame {
    uint32_t bytes;
    uint8_t kind;
    uint8_t unused;
    uint16_t path_bytes;
    uint64_t thread;
    int64_t result;
    uint64_t ino;
    uint64_t offset;
} __attribute__((packed));

static void note(char kind, uint64_t ino, const char *path, uint64_t offset, int64_t result, const void *data,
                 size_t length) {
    if (record_fd < 0) return;
    int kept = errno;
    size_t path_bytes = path ? strlen(path) : 0;
    struct frame frame = {.bytes = (uint32_t)(sizeof frame + path_bytes + length),
                          .kind = (uint8_t)kind,
                          .path_bytes = (uint16_t)path_bytes,
                          .thread = (uint64_t)syscall(SYS_gettid),
                          .result = result,
                          .ino = ino,
                          .offset = offset};
    struct iovec parts[3] = {{&frame, sizeof frame}, {(void *)path, path_bytes}, {(void *)data, length}};
    /* One call on a file opened for appending: frames of several threads do not mix. */
    if (syscall(SYS_writev, record_fd, parts, 3) != (long)frame.bytes) abort();
    errno = kept;
}

__attribute__((constructor)) static void start(void) {
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *folder = getenv("COFFERDAM_SHIM");
    const char *watched = getenv("COFFERDAM_SHIM_ROOT");
    if (!folder || !watched) return;
    snprintf(root, sizeof root, "%s", watched);
    root_length = strlen(root);
    snprintf(record_path, sizeof record_path, "%s/record", folder);
    snprintf(control_path, sizeof control_path, "%s/control", folder);
    snprintf(clock_path, sizeof clock_path, "%s/clock", folder);
    snprintf(frozen_path, sizeof frozen_path, "%s/frozen", folder);
    record_fd = (int)syscall(SYS_openat, AT_FDCWD, record_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* ---- which files count ---- */

static int is_watched(const char *path) {
    return root_length && strncmp(path, root, root_length) == 0 &&
           (path[root_length] == '/' || path[root_length] == 0);
}

static int path_of_fd(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

/* The path with its folder made canonical, as far as it exists. */
static int path_of_name(int folder, const char *name, char *path) {
    char joined[2 * PATH_MAX], real[PATH_MAX], base[PATH_MAX];
    if (name[0] == '/') {
        snprintf(joined, sizeof joined, "%s", name);
    } else {
        if (folder == AT_FDCWD ? !getcwd(base, sizeof base) : !path_of_fd(folder, base)) return 0;
        snprintf(joined, sizeof joined, "%s/%s", base, name);
    }
    char *slash = strrchr(joined, '/');
    if (!slash || slash == joined || !slash[1]) return 0;
    *slash = 0;
    if (!realpath(joined, real)) return 0;
    return snprintf(path, PATH_MAX, "%s/%s", real, slash + 1) < PATH_MAX;
}

enum what { OTHER, REGULAR, FOLDER, SOCKET };

static enum what classify(int fd, uint64_t *ino, char *path) {
    struct stat found;
    int kept = errno;
    enum what what = OTHER;
    if (record_fd >= 0 && fd != record_fd && fstat(fd, &found) == 0) {
        *ino = (uint64_t)found.st_ino;
        if (S_ISSOCK(found.st_mode)) {
            what = SOCKET;
        } else if ((S_ISREG(found.st_mode) || S_ISDIR(found.st_mode)) && path_of_fd(fd, path) && is_watched(path)) {
            what = S_ISDIR(found.st_mode) ? FOLDER : REGULAR;
        }
    }
    errno = kept;
    return what;
}

/* ---- the rules ---- */

static void load_rules(void) {
    struct stat found;
    if (stat(control_path, &found) != 0) {
        rules_count = 0;
        control_ino = 0;
        return;
    }
    if (found.st_ino == control_ino && found.st_mtim.tv_sec == control_time.tv_sec &&
        found.st_mtim.tv_nsec == control_time.tv_nsec)
        return;
    control_ino = found.st_ino;
    control_time = found.st_mtim;
    rules_count = 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, control_path, O_RDONLY | O_CLOEXEC, 0);
    char text[4096];
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    if (fd >= 0) syscall(SYS_close, fd);
    text[length < 0 ? 0 : length] = 0;
    char *rest = text, *line;
    while (rules_count < RULES_MAX && (line = strsep(&rest, "\n"))) {
        struct rule rule = {0};
        char action[16];
        if (sscanf(line, "%7s %63s %15s %ld %ld", rule.op, rule.part, action, &rule.argument, &rule.from) < 3) continue;
        rule.action = !strcmp(action, "delay") ? DELAY : !strcmp(action, "error") ? ERROR : !strcmp(action, "freeze") ? FREEZE : SPACE;
        rules[rules_count++] = rule;
    }
}

/* The first rule for this operation, counted; and for SPACE what is left of it after `wanted` bytes. */
static int match(const char *op, const char *path, size_t wanted, int count, struct rule *matched) {
    int found = 0;
    pthread_mutex_lock(&rules_lock);
    load_rules();
    for (int i = 0; i < rules_count && !found; i++) {
        struct rule *rule = &rules[i];
        if (strcmp(rule->op, op) != 0) continue;
        if (strcmp(rule->part, "*") != 0 && !strstr(path + root_length, rule->part)) continue;
        if (count) rule->seen++;
        if (rule->seen <= rule->from) continue;
        *matched = *rule;
        found = 1;
        if (rule->action == SPACE) rule->argument = rule->argument > (long)wanted ? rule->argument - (long)wanted : 0;
    }
    pthread_mutex_unlock(&rules_lock);
    return found;
}

static void pause_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (syscall(SYS_nanosleep, &time, &time) != 0 && errno == EINTR) {
    }
}

static void freeze(const char *op, const char *path) {
    struct rule rule;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, frozen_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) syscall(SYS_close, fd);
    while (match(op, path, 0, 0, &rule) && rule.action == FREEZE) pause_ms(1);
}

/* How many bytes may go through: all, some, or -1 with errno set. */
static ssize_t permit(const char *op, uint64_t ino, const char *path, size_t wanted) {
    struct rule rule;
    if (!match(op, path, wanted, 1, &rule)) return (ssize_t)wanted;
    switch (rule.action) {
    case DELAY: pause_ms(rule.argument); return (ssize_t)wanted;
    case FREEZE: freeze(op, path); return (ssize_t)wanted;
    case SPACE:
        if ((long)wanted <= rule.argument) return (ssize_t)wanted;
        if (rule.argument > 0) return rule.argument;
        rule.argument = ENOSPC;
        break;
    case ERROR: break;
    }
    note('F', ino, path, 0, rule.argument, op, strlen(op));
    errno = (int)rule.argument;
    return -1;
}

/* ---- bytes ---- */

static void *joined(const struct iovec *parts, int count, size_t length) {
    char *data = malloc(length ? length : 1), *end = data;
    if (!data) abort();
    for (int i = 0; i < count; i++) {
        memcpy(end, parts[i].iov_base, parts[i].iov_len);
        end += parts[i].iov_len;
    }
    return data;
}

/* A write at the file's own place (offset -1) or at a given one. */
static ssize_t write_file(int fd, uint64_t ino, const char *path, const void *data, size_t length, off_t offset) {
    ssize_t allowed = permit("write", ino, path, length);
    if (allowed < 0) return -1;
    ssize_t written = offset < 0 ? syscall(SYS_write, fd, data, (size_t)allowed)
                                 : syscall(SYS_pwrite64, fd, data, (size_t)allowed, offset);
    if (written > 0) {
        int kept = errno;
        off_t at = offset < 0 ? lseek(fd, 0, SEEK_CUR) - written : offset;
        errno = kept;
        note('W', ino, path, (uint64_t)at, written, data, (size_t)written);
    }
    return written;
}

ssize_t write(int fd, const void *data, size_t length) {
    char path[PATH_MAX];
    uint64_t ino;
    switch (classify(fd, &ino, path)) {
    case REGULAR: return write_file(fd, ino, path, data, length, -1);
    case SOCKET: {
        note('A', ino, NULL, 0, 0, data, length);
        ssize_t sent = syscall(SYS_write, fd, data, length);
        note('a', ino, NULL, 0, sent, NULL, 0);
        return sent;
    }
    default: return syscall(SYS_write, fd, data, length);
    }
}

ssize_t pwrite64(int fd, const void *data, size_t length, off_t offset) {
    char path[PATH_MAX];
    uint64_t ino;
    if (classify(fd, &ino, path) == REGULAR) return write_file(fd, ino, path, data, length, offset);
    return syscall(SYS_pwrite64, fd, data, length, offset);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return pwrite64(fd, data, length, offset); }

static size_t length_of(const struct iovec *parts, int count) {
    size_t length = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    return length;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    char path[PATH_MAX];
    uint64_t ino;
    enum what what = classify(fd, &ino, path);
    if (what != REGULAR && what != SOCKET) return syscall(SYS_writev, fd, parts, count);
    size_t length = length_of(parts, count);
    void *data = joined(parts, count, length);
    ssize_t written;
    if (what == REGULAR) {
        written = write_file(fd, ino, path, data, length, -1);
    } else {
        note('A', ino, NULL, 0, 0, data, length);
        written = syscall(SYS_writev, fd, parts, count);
        note('a', ino, NULL, 0, written, NULL, 0);
    }
    free(data);
    return written;
}

ssize_t sendto(int fd, const void *data, size_t length, int flags, const struct sockaddr *to, socklen_t to_length) {
    char path[PATH_MAX];
    uint64_t ino;
    enum what what = classify(fd, &ino, path);
    if (what == SOCKET) note('A', ino, NULL, 0, 0, data, length);
    ssize_t sent = syscall(SYS_sendto, fd, data, length, flags, to, to_length);
    if (what == SOCKET) note('a', ino, NULL, 0, sent, NULL, 0);
    return sent;
}

ssize_t send(int fd, const void *data, size_t length, int flags) { return sendto(fd, data, length, flags, NULL, 0); }

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    char path[PATH_MAX];
    uint64_t ino;
    if (classify(fd, &ino, path) != SOCKET) return syscall(SYS_sendmsg, fd, message, flags);
    size_t length = length_of(message->msg_iov, (int)message->msg_iovlen);
    void *data = joined(message->msg_iov, (int)message->msg_iovlen, length);
    note('A', ino, NULL, 0, 0, data, length);
    ssize_t sent = syscall(SYS_sendmsg, fd, message, flags);
    note('a', ino, NULL, 0, sent, NULL, 0);
    free(data);
    return sent;
}

/* Copies inside the kernel would pass by: whoever asks for one falls back to reading and writing. */
ssize_t copy_file_range(int in, off_t *in_offset, int out, off_t *out_offset, size_t length, unsigned flags) {
    char path[PATH_MAX];
    uint64_t ino;
    if (classify(out, &ino, path) == REGULAR) return errno = ENOSYS, -1;
    return syscall(SYS_copy_file_range, in, in_offset, out, out_offset, length, flags);
}

ssize_t sendfile64(int out, int in, off_t *offset, size_t length) {
    char path[PATH_MAX];
    uint64_t ino;
    if (classify(out, &ino, path) == REGULAR) return errno = ENOSYS, -1;
    return syscall(SYS_sendfile, out, in, offset, length);
}

ssize_t sendfile(int out, int in, off_t *offset, size_t length) { return sendfile64(out, in, offset, length); }

/* ---- syncs ---- */

static size_t list(int fd, char *listing) {
    size_t length = 0;
    int folder = (int)syscall(SYS_openat, fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *open_folder = folder < 0 ? NULL : fdopendir(folder);
    struct dirent *entry;
    while (open_folder && (entry = readdir(open_folder))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        length += (size_t)snprintf(listing + length, LISTING_MAX - length, "%llu %c %s\n",
                                   (unsigned long long)entry->d_ino, entry->d_type == DT_DIR ? 'd' : 'f', entry->d_name);
        if (length >= LISTING_MAX) abort();
    }
    if (open_folder) closedir(open_folder);
    return length;
}

static int sync_file(int fd, long number) {
    char path[PATH_MAX];
    uint64_t ino;
    enum what what = classify(fd, &ino, path);
    if (what != REGULAR && what != FOLDER) return (int)syscall(number, fd);
    char *listing = what == FOLDER ? malloc(LISTING_MAX) : NULL;
    size_t listed = listing ? list(fd, listing) : 0;
    note(what == FOLDER ? 'D' : 'S', ino, path, 0, 0, listing, listed);
    free(listing);
    int result = permit("sync", ino, path, 0) < 0 ? -1 : (int)syscall(number, fd);
    note('E', ino, path, 0, result == 0 ? 0 : -errno, NULL, 0);
    return result;
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

/* ---- names ---- */

static uint64_t ino_of(const char *path) {
    struct stat found;
    int kept = errno;
    uint64_t ino = lstat(path, &found) == 0 ? (uint64_t)found.st_ino : 0;
    errno = kept;
    return ino;
}

static int open_file(int folder, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int kept = errno;
    int watched = record_fd >= 0 && path_of_name(folder, name, path) && is_watched(path);
    uint64_t before = watched ? ino_of(path) : 0;
    errno = kept;
    if (watched && !before && (flags & O_CREAT) && permit("create", 0, path, 1) < 1) {
        errno = errno ? errno : ENOSPC;
        return -1;
    }
    int fd = (int)syscall(SYS_openat, folder, name, flags, mode);
    if (fd >= 0 && watched) {
        if (!before) note('C', ino_of(path), path, 0, 0, NULL, 0);
        else if (flags & O_TRUNC) note('T', before, path, 0, 0, NULL, 0);
        else note('O', before, path, 0, 0, NULL, 0);
    }
    return fd;
}

#define MODE(flags)                                   \
    mode_t mode = 0;                                  \
    if ((flags) & (O_CREAT | O_TMPFILE)) {            \
        va_list more;                                 \
        va_start(more, flags);                        \
        mode = (mode_t)va_arg(more, unsigned);        \
        va_end(more);                                 \
    }

int open(const char *name, int flags, ...) {
    MODE(flags)
    return open_file(AT_FDCWD, name, flags, mode);
}
int open64(const char *name, int flags, ...) {
    MODE(flags)
    return open_file(AT_FDCWD, name, flags, mode);
}
int openat(int folder, const char *name, int flags, ...) {
    MODE(flags)
    return open_file(folder, name, flags, mode);
}
int openat64(int folder, const char *name, int flags, ...) {
    MODE(flags)
    return open_file(folder, name, flags, mode);
}

int ftruncate64(int fd, off_t length) {
    char path[PATH_MAX];
    uint64_t ino;
    enum what what = classify(fd, &ino, path);
    int result = (int)syscall(SYS_ftruncate, fd, length);
    if (result == 0 && what == REGULAR) note('T', ino, path, (uint64_t)length, 0, NULL, 0);
    return result;
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    char old[PATH_MAX], new[PATH_MAX];
    int watched = record_fd >= 0 && path_of_name(from_folder, from, old) && path_of_name(to_folder, to, new) &&
                  is_watched(old) && is_watched(new);
    int result = (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
    if (result == 0 && watched) note('R', ino_of(new), new, 0, 0, old, strlen(old));
    return result;
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return renameat2(from_folder, from, to_folder, to, 0);
}
int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    char path[PATH_MAX];
    int watched = record_fd >= 0 && path_of_name(to_folder, to, path) && is_watched(path);
    int result = (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
    if (result == 0 && watched) note('C', ino_of(path), path, 0, 0, NULL, 0);
    return result;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int unlinkat(int folder, const char *name, int flags) {
    char path[PATH_MAX];
    int watched = record_fd >= 0 && path_of_name(folder, name, path) && is_watched(path);
    uint64_t ino = watched ? ino_of(path) : 0;
    int result = (int)syscall(SYS_unlinkat, folder, name, flags);
    if (result == 0 && watched) note('U', ino, path, 0, 0, NULL, 0);
    return result;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t mode) {
    char path[PATH_MAX];
    int result = (int)syscall(SYS_mkdirat, folder, name, mode);
    if (result == 0 && record_fd >= 0 && path_of_name(folder, name, path) && is_watched(path))
        note('M', ino_of(path), path, 0, 0, NULL, 0);
    return result;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

/* ---- the date ---- */

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = real_clock_gettime ? real_clock_gettime(clock, time) : (int)syscall(SYS_clock_gettime, clock, time);
    if (result != 0 || record_fd < 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return result;
    int kept = errno;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, clock_path, O_RDONLY | O_CLOEXEC, 0);
    if (fd >= 0) {
        char text[32];
        ssize_t length = read(fd, text, sizeof text - 1);
        syscall(SYS_close, fd);
        text[length < 0 ? 0 : length] = 0;
        time->tv_sec += strtol(text, NULL, 10) / 1000;
    }
    errno = kept;
    return 0;
}
