/* Mounts: sources are opened as detached copies in numbered slots, then attached where the sandbox's view is put
 * together. */
#define _GNU_SOURCE
#include "launch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* Not in every libc's headers; numbers are the same on all architectures since Linux 5.1. */
enum { NR_open_tree = 428, NR_move_mount = 429, NR_mount_setattr = 442 };
enum { TREE_CLONE = 1, RECURSIVE = 0x8000, MOVE_FROM_EMPTY = 4 };
enum { ATTR_RDONLY = 1, ATTR_NOSUID = 2, ATTR_NODEV = 4, ATTR_NOEXEC = 8, ATTR_IDMAP = 0x00100000 };
enum { SLOTS = 64, LARGEST_COPY = 1 << 18, FEW_FILES = 6 };

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

static int idle(void *parent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != *(pid_t *)parent) _exit(1); /* it was killed before it could take us along */
    for (;;) pause();
}

/* In our memory: a copy of it would be made for nothing. */
static pid_t idle_in_new_userns(void) {
    static char stack[4096] __attribute__((aligned(16)));
    static pid_t parent;
    parent = getpid();
    pid_t child = clone(idle, stack + sizeof stack, CLONE_VM | CLONE_NEWUSER | SIGCHLD, &parent);
    check(child < 0, "idmap", "clone");
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
    mode_t mode = (mode_t)strtoul(args[1], NULL, 8);
    uid_t uid = (uid_t)number(args[2]);
    gid_t gid = (gid_t)number(args[3]);
    check(mkdir(args[0], mode & 0755), "dir", args[0]);
    check((uid != geteuid() || gid != getegid()) && lchown(args[0], uid, gid), "dir", args[0]);
    check((mode & ~0755U) && chmod(args[0], mode), "dir", args[0]);
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

/* From the start of a descriptor, until its end or until SIZE bytes are there. */
static void copy_file(const char *op, int from, off_t size, const char *path, mode_t mode) {
    char buffer[65536];
    off_t at = 0;
    ssize_t got = 1;
    int to = open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    check(to < 0, op, path);
    while (at < size && got > 0) {
        got = pread(from, buffer, sizeof buffer, at);
        check(got < 0 || write(to, buffer, (size_t)got) != got, op, path);
        at += got;
    }
    check(close(to), op, path);
}

/* program PATH FD: what FD holds, from its start, as an executable file. */
void op_program(char **args) {
    struct stat status;
    int from = (int)number(args[1]);
    check(fstat(from, &status), "program", args[0]);
    copy_file("program", from, status.st_size, args[0], 0755);
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

static int is_small_file(const struct stat *status) {
    return S_ISREG(status->st_mode) && (status->st_mode & S_IROTH) && status->st_size <= LARGEST_COPY;
}

static void copy_small_file(int from, const struct stat *status, const char *path) {
    copy_file("show", from, status->st_size, path, 0644);
}

/* The files in a folder when they are few, small, and all that is in it; else 0. The names are in LIST, one after the
 * other. Closes the folder. */
static int few_files(int folder, char list[FEW_FILES][NAME_MAX + 1]) {
    struct stat status;
    struct dirent *entry;
    int count = 0;
    DIR *entries = fdopendir(folder);
    check(!entries, "show", "fdopendir");
    while (count >= 0 && (entry = readdir(entries))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        int small = count < FEW_FILES && !fstatat(folder, entry->d_name, &status, AT_SYMLINK_NOFOLLOW);
        if (small && is_small_file(&status)) strcpy(list[count++], entry->d_name);
        else count = -1;
    }
    closedir(entries);
    return count < 0 ? 0 : count;
}

/* Whether a folder was shown as a copy. One that all may read, with a few files: that is cheaper than a mount. */
static int copied_folder(int from, const struct stat *status, const char *path) {
    static char list[FEW_FILES][NAME_MAX + 1];
    char target[PATH_MAX];
    struct stat file;
    if ((status->st_mode & 05) != 05) return 0;
    int listed = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int count = listed < 0 ? 0 : few_files(listed, list);
    if (!count) return 0;
    check(mkdir(path, 0755), "show", path);
    for (int i = 0; i < count; i++) {
        int fd = openat(from, list[i], O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        snprintf(target, sizeof target, "%s/%s", path, list[i]);
        if (fd >= 0 && !fstat(fd, &file) && is_small_file(&file)) copy_small_file(fd, &file, target);
        if (fd >= 0) close(fd);
    }
    return 1;
}

/* show FROM TO: what the host has at FROM for all to read, symlinks followed: a file of some size, or a folder with a few
 * of them, as a copy, which is cheaper than a mount for whoever walks the mount table, else a read-only mount. Nothing
 * when there is nothing. */
void op_show(char **args) {
    struct stat status;
    struct attributes attributes = {.set = ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV};
    int from = open_file(args[0], O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (from < 0 && (errno == ENOENT || errno == EACCES || errno == ENOTDIR || errno == ELOOP)) return;
    check(from < 0 || fstat(from, &status), "show", args[0]);
    if (is_small_file(&status)) {
        copy_small_file(from, &status, args[1]);
    } else if (S_ISREG(status.st_mode) || (S_ISDIR(status.st_mode) && !copied_folder(from, &status, args[1]))) {
        int tree = clone_tree("show", from, "", RECURSIVE | AT_EMPTY_PATH);
        set_attributes("show", tree, args[0], &attributes);
        attach("show", tree, S_ISDIR(status.st_mode), args[1]);
    }
    close(from);
}

/* devices PATH: a folder with what programs expect in /dev beside terminals; only root can. Where devices cannot be made
 * (a container), those of the host are mounted. */
void op_devices(char **args) {
    static const struct { const char *name; unsigned major, minor; } nodes[] = {
        {"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
    };
    char path[PATH_MAX], host[64];
    check(mkdir(args[0], 0755), "devices", args[0]);
    check(mount("stockade", args[0], "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,mode=755"), "devices", args[0]);
    for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++) {
        snprintf(path, sizeof path, "%s/%s", args[0], nodes[i].name);
        if (mknod(path, S_IFCHR | 0666, makedev(nodes[i].major, nodes[i].minor)) == 0) {
            check(chmod(path, 0666), "devices", path);
            continue;
        }
        check(errno != EPERM, "devices", path);
        snprintf(host, sizeof host, "/dev/%s", nodes[i].name);
        struct attributes attributes = {.set = ATTR_NOSUID | ATTR_NOEXEC};
        int tree = clone_tree("devices", AT_FDCWD, host, 0);
        set_attributes("devices", tree, host, &attributes);
        attach("devices", tree, 0, path);
    }
}

/* pts PATH: terminals of its own; only where a user 0 is known. The options are bubblewrap's. */
void op_pts(char **args) {
    const char *options = "newinstance,ptmxmode=0666,mode=620";
    check(mkdir(args[0], 0755), "pts", args[0]);
    check(mount("devpts", args[0], "devpts", MS_NOSUID | MS_NOEXEC, options), "pts", args[0]);
}

/* seal PATH: the mount at PATH, without those below it, cannot be written any more. */
void op_seal(char **args) {
    struct attributes attributes = {.set = ATTR_RDONLY};
    check(syscall(NR_mount_setattr, AT_FDCWD, args[0], 0, &attributes, sizeof attributes) != 0, "seal", args[0]);
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
