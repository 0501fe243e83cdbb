/* Planned addresses for PyTorch's CPU tensors.

   PyTorch has no hook for the memory of its CPU kernels. Its library libc10 asks the C library for every tensor
   (posix_memalign, free) through its table of imported functions; `girih_install` puts the two functions below in their
   place there, and nowhere else. While a thread runs a kernel of a plan it has a list of requests: how many bytes the
   kernel will ask for, and at which address of the arena each lies. What is not on the list is counted, and refused
   where the cap is hard. Threads without a list, and everybody else in the process, get what the C library gives.

   Memory of an arena is never handed back by `free`: the plan knows when it is free again. */

#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
#define IS_IMPORT(kind) ((kind) == R_X86_64_JUMP_SLOT || (kind) == R_X86_64_GLOB_DAT)
#elif defined(__aarch64__)
#define IS_IMPORT(kind) ((kind) == R_AARCH64_JUMP_SLOT || (kind) == R_AARCH64_GLOB_DAT)
#else
#error "planned addresses are known for x86-64 and aarch64 alone"
#endif

#define MOST_ARENAS 64

typedef struct {
    int64_t bytes;   /* what the kernel asks for */
    int64_t address; /* where it lies */
    int64_t used;    /* 1 once it was handed out */
} Request;

typedef struct {
    int64_t bytes;   /* asked for, or -1 where the pointer is freed */
    int64_t pointer;
} Event;

typedef struct {
    Request *requests;
    int64_t count;
    int64_t hard;          /* refuse what is not on the list */
    int64_t missed;        /* bytes that were asked for and are not on the list */
    Event *events;         /* what happens is written here, where there is room */
    int64_t room, happened;
} Thread;

static struct {
    uintptr_t begin, end;
} arenas[MOST_ARENAS];

static __thread Thread *mine;

static void note(int64_t bytes, void *pointer) {
    if (mine->events && mine->happened < mine->room) {
        mine->events[mine->happened].bytes = bytes;
        mine->events[mine->happened].pointer = (int64_t)(uintptr_t)pointer;
    }
    mine->happened++;
}

static int planned_memalign(void **result, size_t alignment, size_t bytes) {
    if (mine && mine->requests) {
        for (int64_t n = 0; n < mine->count; n++) {
            Request *request = &mine->requests[n];
            if (!request->used && request->bytes == (int64_t)bytes) {
                request->used = 1;
                *result = (void *)(uintptr_t)request->address;
                return 0;
            }
        }
        mine->missed += (int64_t)bytes;
        if (mine->hard)
            return ENOMEM;
    }
    int failed = posix_memalign(result, alignment, bytes);
    if (mine && mine->events && !failed)
        note((int64_t)bytes, *result);
    return failed;
}

static void planned_free(void *pointer) {
    uintptr_t place = (uintptr_t)pointer;
    for (int n = 0; n < MOST_ARENAS; n++)
        if (place >= arenas[n].begin && place < arenas[n].end)
            return;
    if (mine && mine->events && pointer)
        note(-1, pointer);
    free(pointer);
}

/* What this thread's kernels are to be given, until it is called with NULL. */
void girih_thread(Thread *thread) { mine = thread; }

/* An arena from `begin` on; 0, or ENOSPC where there are too many. */
int girih_open(uintptr_t begin, uintptr_t bytes) {
    for (int n = 0; n < MOST_ARENAS; n++) {
        uintptr_t none = 0;
        if (__atomic_compare_exchange_n(&arenas[n].begin, &none, begin, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            __atomic_store_n(&arenas[n].end, begin + bytes, __ATOMIC_SEQ_CST);
            return 0;
        }
    }
    return ENOSPC;
}

void girih_close(uintptr_t begin) {
    for (int n = 0; n < MOST_ARENAS; n++)
        if (arenas[n].begin == begin) {
            __atomic_store_n(&arenas[n].end, 0, __ATOMIC_SEQ_CST);
            __atomic_store_n(&arenas[n].begin, 0, __ATOMIC_SEQ_CST);
        }
}

static int replace(void **slot, void *function) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)slot & ~(page - 1);
    size_t length = ((uintptr_t)slot + sizeof *slot) - begin;
    if (mprotect((void *)begin, length, PROT_READ | PROT_WRITE))
        return 0;
    __atomic_store_n(slot, function, __ATOMIC_SEQ_CST);
    return 1;
}

static int patch(struct dl_phdr_info *info, size_t size, void *found) {
    (void)size;
    const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
    if (!name || strncmp(name, "/libc10.so", 10))
        return 0;
    const ElfW(Dyn) *entry = NULL;
    for (int n = 0; n < info->dlpi_phnum; n++)
        if (info->dlpi_phdr[n].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[n].p_vaddr);
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    const ElfW(Rela) *tables[2] = {NULL, NULL};
    size_t lengths[2] = {0, 0};
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB: symbols = (const ElfW(Sym) *)entry->d_un.d_ptr; break;
        case DT_STRTAB: names = (const char *)entry->d_un.d_ptr; break;
        case DT_JMPREL: tables[0] = (const ElfW(Rela) *)entry->d_un.d_ptr; break;
        case DT_PLTRELSZ: lengths[0] = entry->d_un.d_val; break;
        case DT_RELA: tables[1] = (const ElfW(Rela) *)entry->d_un.d_ptr; break;
        case DT_RELASZ: lengths[1] = entry->d_un.d_val; break;
        }
    }
    if (!symbols || !names)
        return 0;
    for (int table = 0; table < 2; table++)
        for (size_t n = 0; tables[table] && n < lengths[table] / sizeof(ElfW(Rela)); n++) {
            const ElfW(Rela) *import = &tables[table][n];
            if (!IS_IMPORT(ELF64_R_TYPE(import->r_info)))
                continue;
            const char *symbol = names + symbols[ELF64_R_SYM(import->r_info)].st_name;
            void **slot = (void **)(info->dlpi_addr + import->r_offset);
            if (!strcmp(symbol, "posix_memalign"))
                *(int *)found |= replace(slot, (void *)planned_memalign);
            else if (!strcmp(symbol, "free"))
                *(int *)found |= 2 * replace(slot, (void *)planned_free);
        }
    return 0;
}

/* 1 if libc10 is loaded and asks here from now on. */
int girih_install(void) {
    int found = 0;
    dl_iterate_phdr(patch, &found);
    return found == 3;
}
