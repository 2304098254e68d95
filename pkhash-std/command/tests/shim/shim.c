/* Runs a command and meddles with its system calls on the files of one folder: seen from the command,
 * the disk is full, breaks, is slow, or the machine dies.
 *
 *     shim LOG FOLDER MODE NUMBER ARGUMENT COMMAND...
 *
 * The kernel hands each call over before it is made (seccomp's user notification), whoever makes it: a
 * library that does without libc is no exception, and the command is the released one. Calls on other
 * files go on as they are; those on the folder's are counted from 1 and logged, one a line: name and path.
 *
 *     trace 0 -     nothing more
 *     kill N -      SIGKILL before call N
 *     torn N -      the same, but half of what call N writes is written
 *     fail N ERRNO  call N fails
 *     full N ERRNO  call N fails and so does, from then on, every one that needs room on the disk
 *     create 0 ERRNO   every call fails that makes or renames a file
 *     nameless 0 ERRNO every call fails that makes a file without a name
 *     short 0 -     reads and writes end early, every time
 *     signals 0 -   each call that a signal can interrupt is interrupted before it is made
 *     worn 0 -      both of these
 *     at N SHELL    before call N the shell does something
 *
 * Exits as the command does; killed by signal S: with 128 + S. With 77, if the kernel does not let calls be
 * watched; with 78 for any other trouble of its own. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no system call numbers for this machine"
#endif

enum { NOT_WATCHED = 77, TROUBLE = 78 };

/* What a call does, as far as it matters here. */
enum { MAKES = 1, WRITES = 2, READS = 4, INTERRUPTIBLE = 8 };

static const struct watched {
    int number;
    const char *name;
    /* Arguments: the path, the folder that it is relative to, or the file descriptor; -1: none. */
    int path, folder, fd;
    int does;
} calls[] = {
#ifdef SYS_open
    {SYS_open, "open", 0, -1, -1, INTERRUPTIBLE},
    {SYS_rename, "rename", 1, -1, -1, MAKES},
    {SYS_unlink, "unlink", 0, -1, -1, 0},
    {SYS_stat, "stat", 0, -1, -1, 0},
    {SYS_lstat, "lstat", 0, -1, -1, 0},
    {SYS_readlink, "readlink", 0, -1, -1, 0},
    {SYS_link, "link", 1, -1, -1, MAKES},
#endif
    {SYS_openat, "open", 1, 0, -1, INTERRUPTIBLE},
#ifdef SYS_renameat
    {SYS_renameat, "rename", 3, 2, -1, MAKES},
#endif
    {SYS_renameat2, "rename", 3, 2, -1, MAKES},
    {SYS_unlinkat, "unlink", 1, 0, -1, 0},
    {SYS_linkat, "link", 3, 2, -1, MAKES},
    {SYS_readlinkat, "readlink", 1, 0, -1, 0},
    {SYS_newfstatat, "stat", 1, 0, -1, 0},
    {SYS_statx, "stat", 1, 0, -1, 0},
    {SYS_fstat, "stat", -1, -1, 0, 0},
    {SYS_read, "read", -1, -1, 0, READS | INTERRUPTIBLE},
    {SYS_pread64, "read", -1, -1, 0, READS | INTERRUPTIBLE},
    {SYS_readv, "readv", -1, -1, 0, INTERRUPTIBLE},
    {SYS_write, "write", -1, -1, 0, WRITES | INTERRUPTIBLE},
    {SYS_pwrite64, "write", -1, -1, 0, WRITES | INTERRUPTIBLE},
    {SYS_writev, "writev", -1, -1, 0, WRITES | INTERRUPTIBLE},
    {SYS_copy_file_range, "copy", -1, -1, 2, WRITES | INTERRUPTIBLE},
    {SYS_sendfile, "copy", -1, -1, 0, WRITES | INTERRUPTIBLE},
    {SYS_lseek, "seek", -1, -1, 0, 0},
    {SYS_ftruncate, "truncate", -1, -1, 0, WRITES | INTERRUPTIBLE},
    {SYS_fallocate, "allocate", -1, -1, 0, WRITES | INTERRUPTIBLE},
    {SYS_fsync, "sync", -1, -1, 0, INTERRUPTIBLE},
    {SYS_fdatasync, "sync", -1, -1, 0, INTERRUPTIBLE},
    {SYS_fchmod, "chmod", -1, -1, 0, 0},
    {SYS_fchown, "chown", -1, -1, 0, 0},
    {SYS_mmap, "map", -1, -1, 4, 0},
};
enum { CALLS = sizeof calls / sizeof *calls };

static pid_t child;
static int child_fd;

static void die(const char *what) {
    fprintf(stderr, "shim: %s: %s\n", what, strerror(errno));
    if (child > 0) kill(child, SIGKILL);
    _exit(TROUBLE);
}

/* In the child: every watched call is handed over from here on. */
static int watch(void) {
    struct sock_filter filter[CALLS + 5];
    size_t n = 0;
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCH, 0, CALLS + 1);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < CALLS; i++)
        filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, CALLS - i, 0);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF);
    struct sock_fprog program = {(unsigned short)n, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
    /* What was handed over cannot be taken back by a signal, where the kernel has that (5.19). */
    const unsigned listener = SECCOMP_FILTER_FLAG_NEW_LISTENER, killable = 1 << 5;
    int fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, listener | killable, &program);
    if (fd >= 0 || errno != EINVAL) return fd;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, listener, &program);
}

/* The path that a call is about; false if it has none. */
static int path_of(const struct watched *call, const struct seccomp_notif *notice, char *path, size_t room) {
    char link[64];
    const __u64 *args = notice->data.args;
    size_t used = 0;
    if (call->path >= 0) {
        char first = 0;
        struct iovec from = {(void *)(uintptr_t)args[call->path], 1}, to = {&first, 1};
        if (process_vm_readv((pid_t)notice->pid, &to, 1, &from, 1, 0) != 1) return 0;
        int folder = call->folder >= 0 ? (int)args[call->folder] : AT_FDCWD;
        if (first != '/') {
            if (folder == AT_FDCWD) snprintf(link, sizeof link, "/proc/%u/cwd", notice->pid);
            else snprintf(link, sizeof link, "/proc/%u/fd/%d", notice->pid, folder);
            ssize_t len = readlink(link, path, room - 2);
            if (len < 0) return 0;
            used = (size_t)len;
            if (first) path[used++] = '/';
        }
        /* A byte at a time: the page behind the string's may not be there. */
        for (__u64 at = args[call->path]; used + 1 < room; at++, used++) {
            struct iovec one = {(void *)(uintptr_t)at, 1}, here = {path + used, 1};
            if (process_vm_readv((pid_t)notice->pid, &here, 1, &one, 1, 0) != 1) return 0;
            if (!path[used]) return 1;
        }
        return 0;
    }
    int fd = (int)args[call->fd];
    if (fd < 0) return 0;
    snprintf(link, sizeof link, "/proc/%u/fd/%d", notice->pid, fd);
    ssize_t len = readlink(link, path, room - 1);
    if (len < 0) return 0;
    path[len] = 0;
    return 1;
}

/* Makes a read or a write for the command, but of `len` bytes. Returns what the call returns. */
static long instead(const struct seccomp_notif *notice, int writes, size_t len) {
    const __u64 *args = notice->data.args;
    int at_offset = notice->data.nr == SYS_pread64 || notice->data.nr == SYS_pwrite64;
    int fd = (int)syscall(SYS_pidfd_getfd, child_fd, (int)args[0], 0);
    if (fd < 0) die("pidfd_getfd");
    char *bytes = malloc(len ? len : 1);
    if (!bytes) die("malloc");
    struct iovec here = {bytes, len}, there = {(void *)(uintptr_t)args[1], len};
    long done;
    if (writes) {
        if (process_vm_readv((pid_t)notice->pid, &here, 1, &there, 1, 0) != (ssize_t)len)
            die("process_vm_readv");
        done = at_offset ? pwrite(fd, bytes, len, (off_t)args[3]) : write(fd, bytes, len);
    } else {
        done = at_offset ? pread(fd, bytes, len, (off_t)args[3]) : read(fd, bytes, len);
    }
    if (done < 0) done = -errno;
    if (!writes && done > 0) {
        here.iov_len = there.iov_len = (size_t)done;
        if (process_vm_writev((pid_t)notice->pid, &here, 1, &there, 1, 0) != done) die("process_vm_writev");
    }
    free(bytes);
    close(fd);
    return done;
}

/* Whether the last call of a thread was interrupted: then this one goes on. */
static int interrupts(__u32 thread) {
    static struct { __u32 thread; int interrupted; } threads[1024];
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        if (!threads[i].thread) threads[i].thread = thread;
        if (threads[i].thread == thread) return threads[i].interrupted = !threads[i].interrupted;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 7) return TROUBLE;
    FILE *log = fopen(argv[1], "w");
    if (!log) die(argv[1]);
    const char *folder = argv[2], *mode = argv[3], *argument = argv[5];
    long number = atol(argv[4]), count = 0;
    int error = atoi(argument), is_full = 0;
    /* From here on no handle but standard ones reaches the command. */
    fcntl(fileno(log), F_SETFD, FD_CLOEXEC);

    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) die("socketpair");
    child = fork();
    if (child < 0) die("fork");
    if (!child) {
        /* `send` and `recv` are not watched. */
        int listener = watch(), answer[2] = {listener, errno};
        if (send(ends[1], answer, sizeof answer, 0) != sizeof answer) _exit(TROUBLE);
        if (listener < 0 || recv(ends[1], answer, 1, 0) != 1) _exit(NOT_WATCHED);
        execvp(argv[6], argv + 6);
        _exit(127);
    }
    close(ends[1]);
    int answer[2];
    if (recv(ends[0], answer, sizeof answer, MSG_WAITALL) != sizeof answer) die("recv");
    if (answer[0] < 0) {
        fprintf(stderr, "shim: seccomp: %s\n", strerror(answer[1]));
        return NOT_WATCHED;
    }
    child_fd = (int)syscall(SYS_pidfd_open, child, 0);
    int listener = child_fd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, child_fd, answer[0], 0);
    if (listener < 0) {
        fprintf(stderr, "shim: pidfd: %s\n", strerror(errno));
        kill(child, SIGKILL);
        return NOT_WATCHED;
    }
    if (send(ends[0], "", 1, 0) != 1) die("send");

    static struct { struct seccomp_notif notice; char more[256]; } in;
    static struct { struct seccomp_notif_resp response; char more[256]; } out;
    static struct seccomp_notif taken_back;
    static char path[8192];
    int dead = 0;
    for (;;) {
        struct pollfd polled[2] = {{listener, POLLIN, 0}, {child_fd, POLLIN, 0}};
        if (poll(polled, 2, -1) < 0) {
            if (errno == EINTR) continue;
            die("poll");
        }
        if (polled[1].revents) break;
        if (dead || !(polled[0].revents & POLLIN)) {
            if (waitpid(child, NULL, WNOHANG | WNOWAIT) == child) break;
            poll(NULL, 0, 1);
            continue;
        }
        memset(&in, 0, sizeof in);
        /* ENOENT: the caller is gone. */
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &in)) continue;
        const struct watched *call = NULL;
        for (int i = 0; i < CALLS; i++)
            if (calls[i].number == in.notice.data.nr) call = &calls[i];
        if (!call) die("a call that is not watched");

        struct seccomp_notif_resp *response = &out.response;
        memset(&out, 0, sizeof out);
        response->id = in.notice.id;
        response->flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        size_t len = strlen(folder);
        if (path_of(call, &in.notice, path, sizeof path) && !strncmp(path, folder, len)
            && (path[len] == '/' || !path[len])) {
            const __u64 *args = in.notice.data.args;
            int does = call->does, fails = 0, nameless = 0;
            if (!strcmp(call->name, "open")) {
                int flags = (int)args[call->path + 1];
                nameless = (flags & O_TMPFILE) == O_TMPFILE;
                if (nameless || flags & O_CREAT) does |= MAKES;
            }
            /* A call that a signal took back comes again. */
            if (taken_back.pid != in.notice.pid
                || memcmp(&taken_back.data, &in.notice.data, sizeof taken_back.data)) {
                int new = does & MAKES && !strcmp(call->name, "open");
                count++;
                fprintf(log, "%s%s %s\n", call->name, nameless ? "-nameless" : new ? "-new" : "", path);
                fflush(log);
            }
            taken_back.pid = 0;
            int mine = count == number;
            if (mine && (!strcmp(mode, "kill") || !strcmp(mode, "torn"))) {
                if (!strcmp(mode, "torn") && does & WRITES && call->fd == 0 && strcmp(call->name, "truncate"))
                    instead(&in.notice, 1, args[2] / 2);
                kill(child, SIGKILL);
                dead = 1;
                continue;
            }
            if (mine && !strcmp(mode, "at") && system(argument)) die("the shell");
            if (!strcmp(mode, "fail")) fails = mine;
            if (!strcmp(mode, "full")) {
                is_full |= mine;
                fails = mine || (is_full && does & (MAKES | WRITES));
            }
            if (!strcmp(mode, "create")) fails = !!(does & MAKES);
            if (!strcmp(mode, "nameless")) fails = nameless;
            int worn = !strcmp(mode, "worn");
            if ((worn || !strcmp(mode, "signals")) && does & INTERRUPTIBLE && interrupts(in.notice.pid)) {
                fails = 1;
                error = EINTR;
            }
            if (fails) {
                response->flags = 0;
                response->error = -error;
            } else if ((worn || !strcmp(mode, "short")) && does & (READS | WRITES)
                       && (!strcmp(call->name, "read") || !strcmp(call->name, "write")) && args[2] > 1) {
                /* No round number, and not so few that a test takes long. */
                size_t some = (args[2] + 1) / 2;
                long done = instead(&in.notice, does & WRITES, some < 9973 ? some : 9973);
                response->flags = 0;
                if (done < 0) response->error = (int)done;
                else response->val = done;
            }
        }
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &out)) {
            if (errno != ENOENT) die("an answer");
            taken_back = in.notice;
        }
    }
    int status;
    if (waitpid(child, &status, 0) != child) die("waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
