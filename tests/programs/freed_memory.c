/* Finds writes to freed memory in a program that no sanitizer was compiled into: preloaded, it keeps and fills freed blocks of 8 KiB to 1 MiB,
   and says at the process's end in which of them something was written. Python itself has its own allocator for smaller blocks.

   cc -O2 -shared -fPIC -o freed_memory.so freed_memory.c -ldl -lpthread
   LD_PRELOAD=./freed_memory.so FREED_MEMORY_LOG=/tmp/freed.log python train.py */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMostBlocks = 200000, kLeastBytes = 8 << 10, kMostBlockBytes = 1 << 20, kFill = 0xEF, kMostWrites = 20, kMostShown = 64 };
static const size_t kMostBytes = (size_t)1 << 30;

static struct {
  unsigned char *begin;
  size_t bytes;
} kept[kMostBlocks];
static int count;
static size_t total_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void free(void *block) {
  static void (*real)(void *);
  if (!block) return;
  if (!real) real = (void (*)(void *))dlsym(RTLD_NEXT, "free");
  const size_t bytes = malloc_usable_size(block);
  int keeps = 0;
  if (bytes >= kLeastBytes && bytes < kMostBlockBytes) {
    pthread_mutex_lock(&lock);
    keeps = count < kMostBlocks && total_bytes + bytes <= kMostBytes;
    if (keeps) {
      memset(block, kFill, bytes);
      kept[count].begin = block;
      kept[count++].bytes = bytes;
      total_bytes += bytes;
    }
    pthread_mutex_unlock(&lock);
  }
  if (!keeps) real(block);
}

__attribute__((destructor)) static void report(void) {
  const char *path = getenv("FREED_MEMORY_LOG");
  FILE *log = path ? fopen(path, "a") : stderr;
  int writes = 0;
  for (int i = 0; log && i < count; ++i) {
    for (size_t at = 0; at < kept[i].bytes; ++at) {
      if (kept[i].begin[at] == kFill) continue;
      size_t end = at;
      while (end < kept[i].bytes && end < at + kMostShown && kept[i].begin[end] != kFill) ++end;
      if (++writes > kMostWrites) break;
      fprintf(log, "%d: %zu bytes written at %zu of a freed block of %zu bytes\n", getpid(), end - at, at, kept[i].bytes);
      at = end;
    }
  }
  if (log) fprintf(log, "%d: %d freed blocks of %zu bytes, %d writes\n", getpid(), count, total_bytes, writes);
  if (log && path) fclose(log);
}
