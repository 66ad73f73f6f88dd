"""Every system call that a sandbox knows, with why: x86-64's number and aarch64's, None where it is not there.

What is in none of these tables, newer calls among them, answers ENOSYS, and callers fall back. From them is made
docs/security/syscalls.md. Numbers: asm/unistd_64.h, asm-generic/unistd.h; those after 450 from Linux 6.15's tables.
"""

from collections.abc import Mapping

Numbers = tuple[int | None, int | None]
Table = Mapping[str, Numbers]

# fmt: off
ALLOWED: Mapping[str, Table] = {
    "Read and write what is open.": {
        "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67), "pwrite64": (18,
        68), "preadv": (295, 69), "pwritev": (296, 70), "preadv2": (327, 286), "pwritev2": (328, 287), "lseek": (8, 62),
        "sendfile": (40, 71), "copy_file_range": (326, 285), "splice": (275, 76), "tee": (276, 77), "vmsplice": (278,
        75), "readahead": (187, 213), "fadvise64": (221, 223),
    },
    "Open and close; `open`, `openat` and `creat` are looked at below.": {
        "close": (3, 57), "close_range": (436, 436), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "fcntl":
        (72, 25), "flock": (73, 32), "pipe": (22, None), "pipe2": (293, 59), "memfd_create": (319, 279),
    },
    "Find out about files.": {
        "stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291), "access":
        (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None), "readlinkat": (267, 78),
        "statfs": (137, 43), "fstatfs": (138, 44), "getdents": (78, None), "getdents64": (217, 61), "getcwd": (79, 17),
        "cachestat": (451, 451),
    },
    "Change files and folders, where mounts and modes allow it.": {
        "truncate": (76, 45), "ftruncate": (77, 46), "rename": (82, None), "renameat": (264, 38), "renameat2": (316,
        276), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "link": (86, None), "linkat": (265, 37),
        "unlink": (87, None), "unlinkat": (263, 35), "symlink": (88, None), "symlinkat": (266, 36), "utime": (132,
        None), "utimes": (235, None), "utimensat": (280, 88), "futimesat": (261, None), "umask": (95, 166), "chdir":
        (80, 49), "fchdir": (81, 50), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260,
        54),
    },
    "Attributes of files; the trusted and security ones need rights that nobody inside has.": {
        "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "getxattr": (191, 8), "lgetxattr": (192, 9),
        "fgetxattr": (193, 10), "listxattr": (194, 11), "llistxattr": (195, 12), "flistxattr": (196, 13), "removexattr":
        (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "setxattrat": (463, 463), "getxattrat": (464,
        464), "listxattrat": (465, 465), "removexattrat": (466, 466),
    },
    "Bring to the disk.": {
        "fsync": (74, 82), "fdatasync": (75, 83), "sync": (162, 81), "syncfs": (306, 267), "sync_file_range": (277, 84),
        "msync": (26, 227),
    },
    "Watch files.": {
        "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "inotify_rm_watch":
        (255, 28),
    },
    "Wait for what is open.": {
        "poll": (7, None), "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "epoll_create": (213, None),
        "epoll_create1": (291, 20), "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22),
        "epoll_pwait2": (441, 441), "eventfd": (284, None), "eventfd2": (290, 19), "signalfd": (282, None), "signalfd4":
        (289, 74),
    },
    "Files read and written in the background by databases; io_uring is not there.": {
        "io_setup": (206, 0), "io_destroy": (207, 1), "io_getevents": (208, 4), "io_pgetevents": (333, 292),
        "io_submit": (209, 2), "io_cancel": (210, 3),
    },
    "Memory of one's own.": {
        "brk": (12, 214), "mmap": (9, 222), "munmap": (11, 215), "mremap": (25, 216), "mprotect": (10, 226), "madvise":
        (28, 233), "mincore": (27, 232), "mlock": (149, 228), "mlock2": (325, 284), "munlock": (150, 229), "mlockall":
        (151, 230), "munlockall": (152, 231), "remap_file_pages": (216, 234), "pkey_mprotect": (329, 288), "pkey_alloc":
        (330, 289), "pkey_free": (331, 290), "membarrier": (324, 283), "mseal": (462, 462), "map_shadow_stack": (453,
        453),
    },
    "Start programs; `clone` is looked at below.": {
        "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "exit": (60, 93),
        "exit_group": (231, 94), "wait4": (61, 260), "waitid": (247, 95), "set_tid_address": (218, 96),
    },
    "Threads and locks.": {
        "futex": (202, 98), "futex_waitv": (449, 449), "futex_wake": (454, 454), "futex_wait": (455, 455),
        "futex_requeue": (456, 456), "set_robust_list": (273, 99), "get_robust_list": (274, 100), "rseq": (334, 293),
        "arch_prctl": (158, None), "set_thread_area": (205, None), "get_thread_area": (211, None), "gettid": (186, 178),
        "restart_syscall": (219, 128),
    },
    "Who one is, in this namespace.": {
        "getpid": (39, 172), "getppid": (110, 173), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176),
        "getegid": (108, 177), "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150), "getpgid":
        (121, 155), "getpgrp": (111, None), "getsid": (124, 156), "setpgid": (109, 154), "setsid": (112, 157), "capget":
        (125, 90), "uname": (63, 160), "sysinfo": (99, 179), "getcpu": (309, 168),
    },
    "Become somebody else, for which nobody inside has the right.": {
        "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143), "setresuid": (117,
        147), "setresgid": (119, 149), "setfsuid": (122, 151), "setfsgid": (123, 152), "setgroups": (116, 159),
        "capset": (126, 91),
    },
    "Set oneself narrower bounds; no program can widen them again.": {
        "prctl": (157, 167), "seccomp": (317, 277), "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445,
        445), "landlock_restrict_self": (446, 446),
    },
    "Limits and shares, never above what was given.": {
        "getrlimit": (97, 163), "setrlimit": (160, 164), "getrusage": (98, 165), "getpriority": (140, 141),
        "ioprio_get": (252, 31),
    },
    "When and where one runs.": {
        "sched_yield": (24, 124), "sched_getparam": (143, 121), "sched_getscheduler": (145, 120),
        "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126), "sched_rr_get_interval": (148, 127),
        "sched_getaffinity": (204, 123), "sched_getattr": (315, 275),
    },
    "Signals; those to another process are looked at below.": {
        "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
        "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "pause": (34, None),
        "pidfd_send_signal": (424, 424),
    },
    "Read clocks, sleep, be woken.": {
        "time": (201, None), "gettimeofday": (96, 169), "clock_gettime": (228, 113), "clock_getres": (229, 114),
        "clock_nanosleep": (230, 115), "nanosleep": (35, 101), "times": (100, 153), "alarm": (37, None), "getitimer":
        (36, 102), "setitimer": (38, 103), "timer_create": (222, 107), "timer_settime": (223, 110), "timer_gettime":
        (224, 108), "timer_getoverrun": (225, 109), "timer_delete": (226, 111), "timerfd_create": (283, 85),
        "timerfd_settime": (286, 86), "timerfd_gettime": (287, 87),
    },
    "Use a socket; which there are, and `setsockopt`, are looked at below.": {
        "connect": (42, 203), "accept": (43, 202), "accept4": (288, 242), "bind": (49, 200), "listen": (50, 201),
        "shutdown": (48, 210), "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212),
        "sendmmsg": (307, 269), "recvmmsg": (299, 243), "getsockname": (51, 204), "getpeername": (52, 205),
        "getsockopt": (55, 209),
    },
    "Talk to other processes of this sandbox: System V and POSIX.": {
        "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197), "semget": (64, 190), "semop":
        (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv":
        (70, 188), "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_timedsend": (242, 182),
        "mq_timedreceive": (243, 183), "mq_notify": (244, 184), "mq_getsetattr": (245, 185),
    },
    "Random numbers.": {
        "getrandom": (318, 278),
    },
}
"""Why: which calls, whatever their arguments."""

CHECKED: Table = {
    "clone": (56, 220), "unshare": (272, 97), "ioctl": (16, 29), "socket": (41, 198), "setsockopt": (54, 208),
    "socketpair": (53, 199), "personality": (135, 92), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "creat": (85, None), "mknod": (133, None), "mknodat": (259, 33), "open": (2, None), "openat": (257, 56),
    "setpriority": (141, 140), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129,
    138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434), "fallocate": (285, 47),
    "prlimit64": (302, 261), "ioprio_set": (251, 30), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122), "sched_setattr": (314, 274),
}
"""Allowed for some arguments: seccomp.py says which."""

REFUSED: Mapping[str, Table] = {
    "Mounts, and another root.": {
        "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
        "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433,
        433), "mount_setattr": (442, 442), "statmount": (457, 457), "listmount": (458, 458), "open_tree_attr": (467,
        467),
    },
    "Other namespaces.": {
        "setns": (308, 268),
    },
    "Look into other processes.": {
        "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438,
        438), "kcmp": (312, 272), "process_madvise": (440, 440),
    },
    "Keys of the kernel, which no namespace holds apart.": {
        "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    },
    "Interfaces with a history of holes.": {
        "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "memfd_secret": (447, 447),
        "modify_ldt": (154, None), "uselib": (134, None),
    },
    "The kernel itself, and the machine.": {
        "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
        "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163,
        89), "quotactl": (179, 60), "quotactl_fd": (443, 443), "syslog": (103, 116), "iopl": (172, None), "ioperm":
        (173, None), "vhangup": (153, 58), "sethostname": (170, 161), "setdomainname": (171, 162), "nfsservctl": (180,
        42),
    },
    "The machine's clock.": {
        "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    },
    "Files by number, past the folders that lead to them; events of a whole file system.": {
        "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "lookup_dcookie": (212, 18), "fanotify_init":
        (300, 262), "fanotify_mark": (301, 263),
    },
    "Where memory lies.": {
        "mbind": (237, 235), "set_mempolicy": (238, 237), "get_mempolicy": (239, 236), "migrate_pages": (256, 238),
        "move_pages": (279, 239), "set_mempolicy_home_node": (450, 450),
    },
    "Old ones that nothing needs.": {
        "ustat": (136, None), "sysfs": (139, None), "_sysctl": (156, None), "create_module": (174, None),
    },
}
"""EPERM, where ENOSYS would send a program looking for another way."""

MISSING: Table = {
    "clone3": (435, 435), "openat2": (437, 437), "fchmodat2": (452, 452), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}
"""ENOSYS: their arguments lie in memory, where a filter cannot look, and callers fall back."""
# fmt: on
