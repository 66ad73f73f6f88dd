/* Mounts: sources are opened as detached copies in numbered slots, then attached where the sandbox's view is put
 * together. */
#define _GNU_SOURCE
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Not in every libc's headers; numbers are the same on all architectures since Linux 5.1. */
enum { NR_open_tree = 428, NR_move_mount = 429, NR_mount_setattr = 442 };
enum { TREE_CLONE = 1, RECURSIVE = 0x8000, MOVE_FROM_EMPTY = 4 };
enum { ATTR_RDONLY = 1, ATTR_NOSUID = 2, ATTR_NODEV = 4, ATTR_IDMAP = 0x00100000 };
enum { SLOTS = 64, LARGEST_COPY = 1 << 18 };

struct attributes {
    uint64_t set, clear, propagation, userns_fd;
};

static int slots[SLOTS];

static int slot(const char *text) {
    unsigned long index = number(text);
    if (index >= SLOTS) {
        errno = EINVAL;
        fail("slot", text);
    }
    return (int)index;
}

/* mountns: a mount namespace that nothing of ours leaves. */
void op_mountns(char **args) {
    (void)args;
    check(unshare(CLONE_NEWNS), "mountns", "unshare");
    check(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "mountns", "private");
}

static int clone_tree(const char *op, int at, const char *path, unsigned flags) {
    int fd = (int)syscall(NR_open_tree, at, path, TREE_CLONE | O_CLOEXEC | flags);
    check(fd < 0, op, path);
    return fd;
}

/* tree SLOT PATH: a detached copy of the mount at PATH and those below it. */
void op_tree(char **args) {
    slots[slot(args[0])] = clone_tree("tree", AT_FDCWD, args[1], RECURSIVE | AT_SYMLINK_NOFOLLOW);
}

/* one SLOT PATH: the same without the mounts below. */
void op_one(char **args) {
    slots[slot(args[0])] = clone_tree("one", AT_FDCWD, args[1], AT_SYMLINK_NOFOLLOW);
}

static void set_attributes(const char *op, int fd, const char *arg, struct attributes *attributes) {
    check(syscall(NR_mount_setattr, fd, "", AT_EMPTY_PATH | RECURSIVE, attributes, sizeof *attributes) != 0, op, arg);
}

/* attributes SLOT BITS: MOUNT_ATTR_* to set. */
void op_attributes(char **args) {
    struct attributes attributes = {.set = number(args[1])};
    set_attributes("attributes", slots[slot(args[0])], args[0], &attributes);
}

static pid_t idle_in_new_userns(void) {
    int ready[2];
    char byte;
    check(pipe2(ready, O_CLOEXEC), "idmap", "pipe");
    pid_t parent = getpid(), child = fork();
    check(child < 0, "idmap", "fork");
    if (child == 0) {
        check(unshare(CLONE_NEWUSER), "idmap", "unshare");
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1); /* it was killed before it could take us along */
        check(write(ready[1], "x", 1) != 1, "idmap", "pipe");
        for (;;) pause();
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1) _exit(STATUS); /* the child has said why */
    close(ready[0]);
    return child;
}

/* idmap SLOT UID_MAP GID_MAP: files whose owner is the first id of a map's line appear as owned by the second. */
void op_idmap(char **args) {
    char path[64];
    pid_t child = idle_in_new_userns();
    snprintf(path, sizeof path, "/proc/%d/uid_map", child);
    write_text("idmap", path, args[1]);
    snprintf(path, sizeof path, "/proc/%d/gid_map", child);
    write_text("idmap", path, args[2]);
    snprintf(path, sizeof path, "/proc/%d/ns/user", child);
    int userns = open(path, O_RDONLY | O_CLOEXEC);
    check(userns < 0, "idmap", path);
    struct attributes attributes = {.set = ATTR_IDMAP, .userns_fd = (uint64_t)userns};
    set_attributes("idmap", slots[slot(args[0])], args[0], &attributes);
    close(userns);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* tmpfs PATH OPTIONS: a new one over PATH. */
void op_tmpfs(char **args) {
    check(mount("stockade", args[0], "tmpfs", MS_NOSUID | MS_NODEV, args[1]), "tmpfs", args[0]);
}

/* dir PATH MODE UID GID: MODE in octal. */
void op_dir(char **args) {
    check(mkdir(args[0], 0700), "dir", args[0]);
    check(lchown(args[0], (uid_t)number(args[2]), (gid_t)number(args[3])), "dir", args[0]);
    check(chmod(args[0], (mode_t)strtoul(args[1], NULL, 8)), "dir", args[0]);
}

/* link PATH TARGET: a symlink. */
void op_link(char **args) {
    check(symlink(args[1], args[0]), "link", args[0]);
}

/* file PATH TEXT: readable by all. */
void op_file(char **args) {
    size_t length = 0;
    while (args[1][length]) length++;
    write_file("file", args[0], args[1], length, O_CREAT | O_EXCL, 0444);
}

static void copy_bytes(const char *op, int from, const char *path) {
    char buffer[65536];
    off_t at = 0;
    ssize_t got;
    while ((got = pread(from, buffer, sizeof buffer, at)) > 0) {
        write_file(op, path, buffer, (size_t)got, O_APPEND, 0);
        at += got;
    }
    check(got < 0, op, path);
}

/* program PATH FD: what FD holds, from its start, as an executable file. */
void op_program(char **args) {
    write_file("program", args[0], "", 0, O_CREAT | O_EXCL, 0555);
    check(chmod(args[0], 0755), "program", args[0]);
    copy_bytes("program", (int)number(args[1]), args[0]);
}

static void attach(const char *op, int fd, int is_folder, const char *path) {
    if (is_folder)
        check(mkdir(path, 0700), op, path);
    else
        write_file(op, path, "", 0, O_CREAT | O_EXCL, 0400);
    check(syscall(NR_move_mount, fd, "", AT_FDCWD, path, MOVE_FROM_EMPTY) != 0, op, path);
    close(fd);
}

/* place SLOT PATH: attach a detached mount; the mount point is made as a file or a directory, whichever it is. */
void op_place(char **args) {
    struct stat status;
    int fd = slots[slot(args[0])];
    check(fstat(fd, &status), "place", args[1]);
    attach("place", fd, S_ISDIR(status.st_mode), args[1]);
}

/* show FROM TO: what the host has at FROM for all to read, symlinks followed: a file of some size as a copy, which is
 * cheaper than a mount for whoever walks the mount table, else a read-only mount. Nothing when there is nothing. */
void op_show(char **args) {
    struct stat status;
    struct attributes attributes = {.set = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV};
    int from = open(args[0], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (from < 0 && (errno == ENOENT || errno == EACCES || errno == ENOTDIR || errno == ELOOP)) return;
    check(from < 0 || fstat(from, &status), "show", args[0]);
    if (S_ISREG(status.st_mode) && (status.st_mode & S_IROTH) && status.st_size <= LARGEST_COPY) {
        write_file("show", args[1], "", 0, O_CREAT | O_EXCL, 0644);
        copy_bytes("show", from, args[1]);
    } else if (S_ISDIR(status.st_mode) || S_ISREG(status.st_mode)) {
        int tree = clone_tree("show", from, "", RECURSIVE | AT_EMPTY_PATH);
        set_attributes("show", tree, args[0], &attributes);
        attach("show", tree, S_ISDIR(status.st_mode), args[1]);
    }
    close(from);
}

/* overlay PATH OPTIONS */
void op_overlay(char **args) {
    check(mkdir(args[0], 0700), "overlay", args[0]);
    check(mount("stockade", args[0], "overlay", MS_NOSUID | MS_NODEV, args[1]), "overlay", args[0]);
}

/* proc PATH: a /proc of the pid namespace; before `root`, as a user namespace may only mount one where it sees one. */
void op_proc(char **args) {
    check(mount("proc", args[0], "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "proc", args[0]);
}

/* root PATH: the mount at PATH becomes the root, and all that was mounted elsewhere is gone from sight: bubblewrap
 * reads the whole mount table anew for each mount of its own. */
void op_root(char **args) {
    check(chdir(args[0]), "root", args[0]);
    check(syscall(SYS_pivot_root, ".", "."), "root", args[0]);
    check(umount2(".", MNT_DETACH), "root", "umount");
    check(chdir("/"), "root", "/");
}
