/* One region of memory from which PyTorch's CPU allocator is served while a step runs.

   libc10 calls posix_memalign, free and madvise through its import table. arena_hook puts functions of this file there.
   A thread that has entered an arena gets its memory from that arena's region; every other thread gets what the C
   library gives. free tells by the address whose block it is. Blocks are kept outside of the region, in an array sorted
   by address: a request takes its planned address where that is free, else the smallest free block that holds it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 64, LANES = 2, ARENAS = 64 };

typedef struct { size_t start, size, asked; int used; long request; } Block; /* asked: bytes; request: in the log */
typedef struct { long lane, number, begin, end; size_t size, start; } Request; /* begin, end: counts of events */

typedef struct Arena {
    char *region;
    size_t size, live, peak, refused, largest; /* refused: the last request that did not fit, largest: free then */
    Block *blocks;
    size_t count, room;
    int closed, logging;
    long ticks, next[LANES], planned[LANES], misses;
    size_t *plan[LANES];
    Request *log;
    long logged, log_room;
    pthread_mutex_t lock;
} Arena;

static Arena *arenas[ARENAS];
static pthread_mutex_t arenas_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread Arena *entered;
static __thread long lane_of;
static int (*real_memalign)(void **, size_t, size_t) = posix_memalign;
static void (*real_free)(void *) = free;

static size_t rounded(size_t bytes) { return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1); }

static int make_room(Arena *arena) {
    if (arena->count + 2 < arena->room) return 1;
    size_t room = arena->room * 2;
    Block *blocks = realloc(arena->blocks, room * sizeof(Block));
    if (!blocks) return 0;
    arena->blocks = blocks;
    arena->room = room;
    return 1;
}

static void insert(Arena *arena, size_t at, Block block) {
    memmove(arena->blocks + at + 1, arena->blocks + at, (arena->count - at) * sizeof(Block));
    arena->blocks[at] = block;
    arena->count++;
}

static void erase(Arena *arena, size_t at) {
    arena->count--;
    memmove(arena->blocks + at, arena->blocks + at + 1, (arena->count - at) * sizeof(Block));
}

static size_t block_at(Arena *arena, size_t start) { /* the block in which this offset lies */
    size_t low = 0, high = arena->count;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (arena->blocks[middle].start <= start) low = middle; else high = middle;
    }
    return low;
}

static void take(Arena *arena, size_t at, size_t start, size_t size, size_t asked, long request) {
    Block *block = arena->blocks + at;
    size_t end = block->start + block->size;
    Block mine = {start, size, asked, 1, request};
    if (start + size < end) insert(arena, at + 1, (Block){start + size, end - start - size, 0, 0, -1});
    block = arena->blocks + at;
    if (block->start < start) {
        block->size = start - block->start;
        insert(arena, at + 1, mine);
    } else *block = mine;
}

static long record(Arena *arena, long lane, long number, size_t asked, size_t start) {
    if (!arena->logging) return -1;
    if (arena->logged == arena->log_room) {
        long room = arena->log_room ? 2 * arena->log_room : 1024;
        Request *log = realloc(arena->log, room * sizeof(Request));
        if (!log) return -1;
        arena->log = log;
        arena->log_room = room;
    }
    arena->log[arena->logged] = (Request){lane, number, arena->ticks, -1, asked, start};
    return arena->logged++;
}

static void *serve(Arena *arena, size_t asked) {
    size_t size = rounded(asked), best = SIZE_MAX, largest = 0, start = SIZE_MAX;
    void *address = NULL;
    pthread_mutex_lock(&arena->lock);
    long lane = lane_of, number = lane >= 0 ? arena->next[lane]++ : -1;
    arena->ticks++;
    if (!make_room(arena)) goto done;
    if (lane >= 0 && number < arena->planned[lane] && arena->plan[lane][number] != SIZE_MAX) {
        size_t wanted = arena->plan[lane][number], at = block_at(arena, wanted);
        Block *block = arena->blocks + at;
        if (!block->used && wanted + size <= block->start + block->size) { best = at; start = wanted; }
        else arena->misses++;
    }
    if (best == SIZE_MAX)
        for (size_t at = 0; at < arena->count; at++) {
            Block *block = arena->blocks + at;
            if (block->used) continue;
            if (block->size > largest) largest = block->size;
            if (block->size >= size && (best == SIZE_MAX || block->size < arena->blocks[best].size)) best = at;
        }
    if (best == SIZE_MAX) { arena->refused = asked; arena->largest = largest; goto done; }
    if (start == SIZE_MAX) start = arena->blocks[best].start;
    take(arena, best, start, size, asked, record(arena, lane, number, asked, start));
    arena->live += asked;
    if (arena->live > arena->peak) arena->peak = arena->live;
    address = arena->region + start;
done:
    pthread_mutex_unlock(&arena->lock);
    return address;
}

static void destroy(Arena *arena) { /* its lock is held; nobody can reach it any more */
    munmap(arena->region, arena->size);
    pthread_mutex_unlock(&arena->lock);
    for (int lane = 0; lane < LANES; lane++) free(arena->plan[lane]);
    free(arena->blocks);
    free(arena->log);
    free(arena);
}

static int last(Arena *arena) { /* closed, and nothing lies in it */
    if (!arena->closed || arena->live || arena->count > 1) return 0;
    for (int at = 0; at < ARENAS; at++) if (arenas[at] == arena) __atomic_store_n(arenas + at, NULL, __ATOMIC_RELEASE);
    return 1;
}

static Arena *owner(const void *address) {
    for (int at = 0; at < ARENAS; at++) {
        Arena *arena = __atomic_load_n(arenas + at, __ATOMIC_ACQUIRE);
        if (arena && (char *)address >= arena->region && (char *)address < arena->region + arena->size) return arena;
    }
    return NULL;
}

static int our_memalign(void **address, size_t alignment, size_t size) {
    Arena *arena = entered;
    if (!arena || !size) return real_memalign(address, alignment, size);
    *address = serve(arena, size);
    return *address ? 0 : ENOMEM;
}

static void our_free(void *address) {
    Arena *arena = address ? owner(address) : NULL;
    if (!arena) { real_free(address); return; }
    pthread_mutex_lock(&arena->lock);
    size_t at = block_at(arena, (size_t)((char *)address - arena->region));
    Block *block = arena->blocks + at;
    arena->live -= block->asked;
    arena->ticks++;
    if (block->request >= 0 && block->request < arena->logged) arena->log[block->request].end = arena->ticks;
    *block = (Block){block->start, block->size, 0, 0, -1};
    if (at + 1 < arena->count && !block[1].used) { block->size += block[1].size; erase(arena, at + 1); }
    if (at > 0 && !arena->blocks[at - 1].used) { arena->blocks[at - 1].size += arena->blocks[at].size; erase(arena, at); }
    if (last(arena)) destroy(arena); else pthread_mutex_unlock(&arena->lock);
}

static int our_madvise(void *address, size_t length, int advice) {
    return owner(address) ? 0 : madvise(address, length, advice); /* the region is advised as a whole */
}

static int replace(char *base, const ElfW(Dyn) *dynamic) { /* entries of one library's import table; how many */
    const char *names = NULL;
    const ElfW(Sym) *symbols = NULL;
    const ElfW(Rela) *tables[2] = {NULL, NULL};
    size_t sizes[2] = {0, 0};
    int changed = 0;
    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        char *pointer = (char *)dynamic->d_un.d_ptr;
        if (pointer < base) pointer += dynamic->d_un.d_ptr < (ElfW(Addr))base ? (size_t)base : 0; /* musl: unrelocated */
        switch (dynamic->d_tag) {
            case DT_STRTAB: names = pointer; break;
            case DT_SYMTAB: symbols = (const ElfW(Sym) *)pointer; break;
            case DT_JMPREL: tables[0] = (const ElfW(Rela) *)pointer; break;
            case DT_PLTRELSZ: sizes[0] = dynamic->d_un.d_val; break;
            case DT_RELA: tables[1] = (const ElfW(Rela) *)pointer; break;
            case DT_RELASZ: sizes[1] = dynamic->d_un.d_val; break;
            case DT_REL: return 0;
        }
    }
    if (!names || !symbols) return 0;
    long page = sysconf(_SC_PAGESIZE);
    for (int table = 0; table < 2; table++)
        for (size_t at = 0; tables[table] && at < sizes[table] / sizeof(ElfW(Rela)); at++) {
            const ElfW(Rela) *entry = tables[table] + at;
            const char *name = names + symbols[ELF64_R_SYM(entry->r_info)].st_name;
            void *ours = !strcmp(name, "posix_memalign") ? (void *)our_memalign
                       : !strcmp(name, "free")           ? (void *)our_free
                       : !strcmp(name, "madvise")        ? (void *)our_madvise : NULL;
            if (!ours || entry->r_addend) continue;
            void **slot = (void **)(base + entry->r_offset);
            void *start = (void *)((uintptr_t)slot & ~(uintptr_t)(page - 1));
            if (mprotect(start, page, PROT_READ | PROT_WRITE)) return 0; /* the table may be read-only (RELRO) */
            *slot = ours;
            changed |= ours == (void *)our_memalign ? 1 : ours == (void *)our_free ? 2 : 0;
        }
    return changed;
}

typedef struct { int hooked; void (*parallel)(void (*)(void *), void *, unsigned, unsigned); } Libraries;
static Libraries libraries;

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size; (void)data;
    const char *name = strrchr(info->dlpi_name, '/');
    name = name ? name + 1 : info->dlpi_name;
    if (!strncmp(name, "libc10.so", 9))
        for (int at = 0; at < info->dlpi_phnum; at++)
            if (info->dlpi_phdr[at].p_type == PT_DYNAMIC)
                libraries.hooked = replace((char *)info->dlpi_addr,
                                           (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[at].p_vaddr));
    return 0;
}

static int find_openmp(struct dl_phdr_info *info, size_t size, void *data) {
    (void)size;
    const char *name = strrchr(info->dlpi_name, '/');
    name = name ? name + 1 : info->dlpi_name;
    if (strncmp(name, "libgomp", 7) && strncmp(name, "libomp", 6) && strncmp(name, "libiomp", 7)) return 0;
    strncpy((char *)data, info->dlpi_name, 4095);
    return 1;
}

int arena_hook(void) { /* 1 if libc10 asks us from now on, else 0: then nothing has changed that matters */
    dl_iterate_phdr(visit, NULL);
    char name[4096] = "";
    if (dl_iterate_phdr(find_openmp, name)) {
        void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
        if (library) *(void **)&libraries.parallel = dlsym(library, "GOMP_parallel");
    }
    return libraries.hooked == 3;
}

Arena *arena_make(size_t size) { /* every page is touched: what a step then needs is there */
    Arena *arena = calloc(1, sizeof(Arena));
    if (!arena) return NULL;
    arena->size = size / ALIGNMENT * ALIGNMENT;
    arena->room = 1024;
    arena->blocks = malloc(arena->room * sizeof(Block));
    arena->region = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!arena->blocks || arena->region == MAP_FAILED) { free(arena->blocks); free(arena); return NULL; }
    madvise(arena->region, size, MADV_HUGEPAGE);
    for (size_t at = 0; at < size; at += 4096) ((volatile char *)arena->region)[at] = 0;
    arena->blocks[0] = (Block){0, arena->size, 0, 0, -1};
    arena->count = 1;
    pthread_mutex_init(&arena->lock, NULL);
    pthread_mutex_lock(&arenas_lock);
    int at = 0;
    while (at < ARENAS && arenas[at]) at++;
    if (at < ARENAS) __atomic_store_n(arenas + at, arena, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&arenas_lock);
    if (at < ARENAS) return arena;
    pthread_mutex_lock(&arena->lock);
    destroy(arena);
    return NULL;
}

void arena_close(Arena *arena) { /* the region goes with the last tensor in it */
    pthread_mutex_lock(&arena->lock);
    arena->closed = 1;
    if (last(arena)) destroy(arena); else pthread_mutex_unlock(&arena->lock);
}

static void mark(void *arena) { if (!entered || !arena) { entered = arena; lane_of = -1; } }

/* This thread, and the OpenMP threads of its kernels, are served from the arena (or, with NULL, no longer). */
void arena_enter(Arena *arena, long lane, int kernels) {
    if (arena) { entered = arena; lane_of = lane; }
    if (kernels && libraries.parallel) libraries.parallel(mark, arena, 0, 0);
    if (!arena) entered = NULL;
}

/* This thread's requests count in another lane; returns the one before. */
long arena_lane(long lane) { long before = lane_of; lane_of = lane; return before; }

/* live, peak, refused, largest free block then, requests that missed their planned address, requests of the lanes */
void arena_state(Arena *arena, size_t *numbers, int restart) {
    pthread_mutex_lock(&arena->lock);
    size_t now[] = {arena->live, arena->peak, arena->refused, arena->largest, (size_t)arena->misses,
                    (size_t)arena->logged, (size_t)arena->ticks};
    memcpy(numbers, now, sizeof now);
    if (restart) {
        arena->peak = arena->live;
        arena->refused = arena->largest = 0;
        arena->misses = 0;
    }
    pthread_mutex_unlock(&arena->lock);
}

/* A step begins: requests are counted from here. With logging, so are they and what is there is written down. */
void arena_begin(Arena *arena, int logging) {
    pthread_mutex_lock(&arena->lock);
    memset(arena->next, 0, sizeof arena->next);
    arena->ticks = 0;
    arena->logging = logging;
    if (logging) {
        arena->logged = 0;
        for (size_t at = 0; at < arena->count; at++) {
            Block *block = arena->blocks + at;
            if (block->used) block->request = record(arena, -2, -1, block->asked, block->start);
        }
    } else for (size_t at = 0; at < arena->count; at++) arena->blocks[at].request = -1;
    pthread_mutex_unlock(&arena->lock);
}

void arena_log(Arena *arena, Request *log) { memcpy(log, arena->log, arena->logged * sizeof(Request)); }

/* Addresses of the first requests of a lane, from the region's start. */
int arena_plan(Arena *arena, long lane, const size_t *starts, long count) {
    size_t *plan = malloc((count ? count : 1) * sizeof(size_t));
    if (!plan) return 0;
    memcpy(plan, starts, count * sizeof(size_t));
    pthread_mutex_lock(&arena->lock);
    free(arena->plan[lane]);
    arena->plan[lane] = plan;
    arena->planned[lane] = count;
    pthread_mutex_unlock(&arena->lock);
    return 1;
}

int arena_holds(Arena *arena, const void *address) { return owner(address) == arena; }
