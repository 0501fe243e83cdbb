/* One region of memory in which everything that a worker holds lies at its planned address.

   libc10 calls posix_memalign, free and madvise through its import table. arena_hook puts functions of this file there.
   A thread that has entered an arena is served from that arena's region; every other thread gets what the C library
   gives. free tells by the address whose block it is.

   Before each call of a kernel the worker says by a ticket what the call may ask for: its results, each with its size
   and its place, and the runs of memory that nothing else has meanwhile, for its scratch. A request of a result's size
   gets the result's place while that is free, every other one the smallest free piece of these runs that holds it. Where
   several requests have a result's size, the worker sees behind the call which of them was the result; where scratch did
   not fit as it came, it is packed behind the step. Both are taught to the ticket for its next calls (arena_teach). What
   has no place is the C library's to give, and is counted; a strict arena refuses it. Blocks are kept outside of
   the region, in an array sorted by address: two never overlap, whatever is asked. */
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

enum { ALIGNMENT = 64, ARENAS = 64 };
static const size_t NOWHERE = SIZE_MAX, BY_SIZE = SIZE_MAX - 1;

typedef struct { size_t asked, start, place, begin, end; } Request; /* start: where it was served; place: taught, or
   BY_SIZE; begin, end: in requests and frees of the call, end NOWHERE of what outlives it */
struct Ticket;
typedef struct { struct Ticket *ticket; long number; } Origin; /* the ticket's request by which a block was made */
typedef struct { size_t start, size, asked; int used; Origin origin; } Block; /* asked: bytes */

typedef struct Ticket {
    struct Ticket *other; /* of the same arena */
    long results, runs, next, taught, room, ticks;
    int failed; /* something had no place */
    size_t *sizes, *places; /* of results */
    size_t *bounds; /* first and one behind the last byte of each run */
    Request *requests; /* of the last call, in their order */
} Ticket;

typedef struct Arena {
    char *region;
    size_t size, live, peak, refused, largest; /* refused: the last request that was, largest: free then */
    size_t outside, outside_peak, outside_requests, misses;
    Block *blocks;
    size_t count, room;
    int closed, strict;
    Ticket *ticket, *tickets;
    pthread_mutex_t lock;
} Arena;

typedef struct { void *address; Arena *arena; size_t size; Origin origin; } Stranger; /* a block of the C library that a step asked for */

static Arena *arenas[ARENAS];
static pthread_mutex_t arenas_lock = PTHREAD_MUTEX_INITIALIZER, strangers_lock = PTHREAD_MUTEX_INITIALIZER;
static Stranger *strangers;
static size_t stranger_count, stranger_room;
static __thread Arena *entered;
static __thread int counted; /* this thread's requests come in the same order in every call */
static __thread size_t at_start = SIZE_MAX, at_size;
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

static int is_free(Arena *arena, size_t start, size_t size) {
    Block *block = arena->blocks + block_at(arena, start);
    return !block->used && start + size <= block->start + block->size;
}

static void take(Arena *arena, size_t start, size_t size, size_t asked, Origin origin) { /* there must be room, and it must be free */
    size_t at = block_at(arena, start);
    Block *block = arena->blocks + at;
    size_t end = block->start + block->size;
    Block mine = {start, size, asked, 1, origin};
    if (start + size < end) insert(arena, at + 1, (Block){start + size, end - start - size, 0, 0, {0}});
    block = arena->blocks + at;
    if (block->start < start) {
        block->size = start - block->start;
        insert(arena, at + 1, mine);
    } else *block = mine;
}

static void count(Arena *arena, size_t live, size_t outside) { /* bytes more */
    arena->live += live;
    arena->outside += outside;
    if (arena->live + arena->outside > arena->peak) arena->peak = arena->live + arena->outside;
    if (arena->outside > arena->outside_peak) arena->outside_peak = arena->outside;
}

static Request *noted(Ticket *ticket, size_t asked) { /* the next request of the call */
    if (ticket->next == ticket->room) {
        long room = ticket->room ? 2 * ticket->room : 8;
        Request *requests = realloc(ticket->requests, room * sizeof(Request));
        if (!requests) return NULL;
        ticket->requests = requests;
        ticket->room = room;
    }
    Request *request = ticket->requests + ticket->next++;
    if (ticket->next > ticket->taught || request->asked != asked) {
        *request = (Request){asked, NOWHERE, BY_SIZE, 0, 0};
        if (ticket->next <= ticket->taught) ticket->taught = ticket->next - 1; /* another order: nothing is known behind */
    }
    request->begin = ticket->ticks++;
    request->end = NOWHERE;
    return request;
}

static void ended(Arena *arena, Origin origin) { /* a block is freed */
    Ticket *ticket = origin.ticket;
    if (ticket && ticket == arena->ticket && origin.number < ticket->next)
        ticket->requests[origin.number].end = ticket->ticks++;
}

static size_t in_runs(Arena *arena, Ticket *ticket, size_t size) { /* the smallest free piece of the runs that holds it */
    size_t best = NOWHERE, smallest = NOWHERE;
    for (long run = 0; run < ticket->runs; run++) {
        size_t first = ticket->bounds[2 * run], end = ticket->bounds[2 * run + 1];
        for (size_t at = block_at(arena, first); at < arena->count && arena->blocks[at].start < end; at++) {
            Block *block = arena->blocks + at;
            if (block->used) continue;
            size_t low = block->start > first ? block->start : first, high = block->start + block->size;
            if (high > end) high = end;
            if (high < low + size || high - low >= smallest) continue;
            smallest = high - low;
            best = low;
        }
    }
    return best;
}

static size_t by_ticket(Arena *arena, size_t asked, size_t size, Origin *origin) {
    Ticket *ticket = arena->ticket;
    if (!ticket) return NOWHERE;
    Request *request = counted ? noted(ticket, asked) : NULL;
    size_t start = NOWHERE;
    if (request && request->place == BY_SIZE) {
        for (long result = 0; result < ticket->results && start == NOWHERE; result++)
            if (ticket->sizes[result] == asked && is_free(arena, ticket->places[result], size))
                start = ticket->places[result];
    } else if (request && request->place != NOWHERE) {
        if (is_free(arena, request->place, size)) start = request->place; else arena->misses++;
    }
    if (start == NOWHERE) start = in_runs(arena, ticket, size);
    if (start == NOWHERE) ticket->failed = 1;
    if (request) {
        request->start = start;
        *origin = (Origin){ticket, ticket->next - 1};
    }
    return start;
}

static void *serve(Arena *arena, size_t asked, int *refused, Origin *origin) {
    size_t size = rounded(asked), start = NOWHERE;
    void *address = NULL;
    pthread_mutex_lock(&arena->lock);
    if (at_start != NOWHERE) { /* this thread has said where */
        if (at_size == asked && is_free(arena, at_start, size)) start = at_start; else arena->misses++;
        at_start = NOWHERE;
    } else start = by_ticket(arena, asked, size, origin);
    if (start != NOWHERE && make_room(arena)) {
        take(arena, start, size, asked, *origin);
        count(arena, asked, 0);
        address = arena->region + start;
    } else if (arena->strict) {
        *refused = 1;
        arena->refused = asked;
        arena->largest = 0;
        for (size_t at = 0; at < arena->count; at++)
            if (!arena->blocks[at].used && arena->blocks[at].size > arena->largest)
                arena->largest = arena->blocks[at].size;
    } else {
        arena->outside_requests++;
        count(arena, 0, asked);
    }
    pthread_mutex_unlock(&arena->lock);
    return address;
}

static void destroy(Arena *arena) { /* its lock is held; nobody can reach it any more */
    /* The Arena itself stays: another thread may be in owner(), to which its bounds say nothing wrong even now. */
    munmap(arena->region, arena->size);
    pthread_mutex_unlock(&arena->lock);
    for (Ticket *ticket = arena->tickets, *other; ticket; ticket = other) {
        other = ticket->other;
        free(ticket->sizes);
        free(ticket->requests);
        free(ticket);
    }
    free(arena->blocks);
}

static int last(Arena *arena) { /* closed, and nobody has anything of it */
    if (!arena->closed || arena->live || arena->outside || arena->count > 1) return 0;
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

static void forget(Arena *arena, size_t size, Origin origin) { /* what lay outside is gone, or never was */
    pthread_mutex_lock(&arena->lock);
    arena->outside -= size;
    ended(arena, origin);
    if (last(arena)) destroy(arena); else pthread_mutex_unlock(&arena->lock);
}

static int stranger(void *address, Arena *arena, size_t size, Origin origin) {
    pthread_mutex_lock(&strangers_lock);
    int known = stranger_count < stranger_room;
    if (!known) {
        size_t room = stranger_room ? 2 * stranger_room : 64;
        Stranger *more = realloc(strangers, room * sizeof(Stranger));
        if (more) { strangers = more; stranger_room = room; known = 1; }
    }
    if (known) {
        strangers[stranger_count] = (Stranger){address, arena, size, origin};
        __atomic_store_n(&stranger_count, stranger_count + 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&strangers_lock);
    return known;
}

static int our_memalign(void **address, size_t alignment, size_t size) {
    Arena *arena = entered;
    int refused = 0;
    Origin origin = {NULL, 0};
    if (!arena || !size) return real_memalign(address, alignment, size);
    if ((*address = serve(arena, size, &refused, &origin))) return 0;
    if (refused) return ENOMEM;
    int wrong = real_memalign(address, alignment, size);
    if (wrong || !stranger(*address, arena, size, origin)) forget(arena, size, origin);
    return wrong;
}

static void our_free(void *address) {
    Arena *arena = address ? owner(address) : NULL;
    if (!arena) {
        size_t size = 0;
        Origin origin = {NULL, 0};
        if (address && __atomic_load_n(&stranger_count, __ATOMIC_ACQUIRE)) {
            pthread_mutex_lock(&strangers_lock);
            for (size_t at = stranger_count; at-- > 0 && !arena;)
                if (strangers[at].address == address) {
                    arena = strangers[at].arena;
                    size = strangers[at].size;
                    origin = strangers[at].origin;
                    strangers[at] = strangers[stranger_count - 1];
                    __atomic_store_n(&stranger_count, stranger_count - 1, __ATOMIC_RELEASE);
                }
            pthread_mutex_unlock(&strangers_lock);
        }
        real_free(address);
        if (arena) forget(arena, size, origin);
        return;
    }
    pthread_mutex_lock(&arena->lock);
    size_t at = block_at(arena, (size_t)((char *)address - arena->region));
    Block *block = arena->blocks + at;
    arena->live -= block->asked;
    ended(arena, block->origin);
    *block = (Block){block->start, block->size, 0, 0, {0}};
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

Arena *arena_make(size_t size, int strict) { /* every page is touched: what a step then needs is there */
    Arena *arena = calloc(1, sizeof(Arena));
    if (!arena) return NULL;
    arena->size = rounded(size ? size : 1);
    arena->strict = strict;
    arena->room = 1024;
    arena->blocks = malloc(arena->room * sizeof(Block));
    arena->region = mmap(NULL, arena->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!arena->blocks || arena->region == MAP_FAILED) { free(arena->blocks); free(arena); return NULL; }
    madvise(arena->region, arena->size, MADV_HUGEPAGE);
    for (size_t at = 0; at < arena->size; at += 4096) ((volatile char *)arena->region)[at] = 0;
    arena->blocks[0] = (Block){0, arena->size, 0, 0, {0}};
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
    arena->ticket = NULL;
    if (last(arena)) destroy(arena); else pthread_mutex_unlock(&arena->lock);
}

static void mark(void *arena) { if (!entered || !arena) { entered = arena; counted = 0; } }

/* This thread, and the OpenMP threads of its kernels, are served from the arena (or, with NULL, no longer). */
void arena_enter(Arena *arena, int kernels) {
    if (arena) { entered = arena; counted = 1; }
    if (kernels && libraries.parallel) libraries.parallel(mark, arena, 0, 0);
    if (!arena) entered = NULL;
}

/* A ticket of the arena: sizes and places of results, in one table, and bounds of runs. */
Ticket *arena_ticket(Arena *arena, const size_t *results, long count, const size_t *bounds, long runs) {
    Ticket *ticket = calloc(1, sizeof(Ticket));
    size_t *numbers = malloc((2 * count + 2 * runs + 1) * sizeof(size_t));
    if (!ticket || !numbers) { free(ticket); free(numbers); return NULL; }
    memcpy(numbers, results, 2 * count * sizeof(size_t));
    memcpy(numbers + 2 * count, bounds, 2 * runs * sizeof(size_t));
    ticket->sizes = numbers;
    ticket->places = numbers + count;
    ticket->bounds = numbers + 2 * count;
    ticket->results = count;
    ticket->runs = runs;
    pthread_mutex_lock(&arena->lock);
    ticket->other = arena->tickets;
    arena->tickets = ticket;
    pthread_mutex_unlock(&arena->lock);
    return ticket;
}

/* A call begins, for which this ticket stands; with NULL nothing has a place. */
void arena_call(Arena *arena, Ticket *ticket) {
    pthread_mutex_lock(&arena->lock);
    arena->ticket = ticket;
    if (ticket) ticket->next = ticket->ticks = 0;
    pthread_mutex_unlock(&arena->lock);
}

/* A ticket in whose last call something had no place, once for each such call; NULL if there is none. */
Ticket *arena_failed(Arena *arena) {
    pthread_mutex_lock(&arena->lock);
    Ticket *ticket = arena->tickets;
    while (ticket && !ticket->failed) ticket = ticket->other;
    if (ticket) ticket->failed = 0;
    pthread_mutex_unlock(&arena->lock);
    return ticket;
}

/* The requests of a ticket's last call; returns how many there are, of which at most `most` are written. */
long arena_requests(const Ticket *ticket, Request *requests, long most) {
    memcpy(requests, ticket->requests, (ticket->next < most ? ticket->next : most) * sizeof(Request));
    return ticket->next;
}

/* The places of a ticket's requests in its next calls. */
void arena_teach(Arena *arena, Ticket *ticket, const size_t *places, long count) {
    pthread_mutex_lock(&arena->lock);
    if (count == ticket->next) {
        for (long at = 0; at < count; at++) ticket->requests[at].place = places[at];
        ticket->taught = count;
    }
    pthread_mutex_unlock(&arena->lock);
}

/* This thread's next request, of so many bytes, has this place. Returns which arena serves the thread else. */
Arena *arena_at(Arena *arena, size_t start, size_t size) {
    Arena *before = entered;
    entered = arena;
    at_start = start;
    at_size = size;
    return before;
}

/* This thread is served from that arena again, or with NULL from none. */
void arena_back(Arena *arena) { entered = arena; at_start = NOWHERE; }

/* live, most of live and outside together, refused, largest free piece then, misses, outside, its most, its requests */
void arena_state(Arena *arena, size_t *numbers, int restart) {
    pthread_mutex_lock(&arena->lock);
    size_t now[] = {arena->live, arena->peak, arena->refused, arena->largest, arena->misses,
                    arena->outside, arena->outside_peak, arena->outside_requests};
    memcpy(numbers, now, sizeof now);
    if (restart) {
        arena->peak = arena->live + arena->outside;
        arena->outside_peak = arena->outside;
        arena->refused = arena->largest = arena->misses = arena->outside_requests = 0;
    }
    pthread_mutex_unlock(&arena->lock);
}

size_t arena_start(Arena *arena) { return (size_t)arena->region; }

/* Fill all that is free with this byte: who reads what was never written is found out. */
void arena_fill(Arena *arena, int byte) {
    pthread_mutex_lock(&arena->lock);
    for (size_t at = 0; at < arena->count; at++)
        if (!arena->blocks[at].used) memset(arena->region + arena->blocks[at].start, byte, arena->blocks[at].size);
    pthread_mutex_unlock(&arena->lock);
}
