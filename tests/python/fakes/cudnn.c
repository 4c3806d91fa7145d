// A stand-in for NVIDIA's libcudnn.so.9, as far as cudnn_helper.cc uses it, with answers that a test can foresee.
// The file `behaviour` beside it says how: well, crash, hang, crash_at_start, silent (no engines), fail (an error), old.
// Engines: 7 (no plan can be made), 8 (noted as nondeterministic) and 9, with workspaces of 32 and 48 MiB.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <libgen.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct descriptor {
  int type;
  int64_t engine;
};

static int is(const char* word) {
  static char behaviour[32];
  if (!behaviour[0]) {
    Dl_info info;
    char path[4096], file[4200];
    dladdr((void*)is, &info);
    snprintf(path, sizeof path, "%s", info.dli_fname);
    snprintf(file, sizeof file, "%s/behaviour", dirname(path));
    FILE* in = fopen(file, "r");
    if (!in || fscanf(in, "%31s", behaviour) != 1) abort();
    fclose(in);
  }
  return strcmp(behaviour, word) == 0;
}

__attribute__((constructor)) static void start(void) {
  if (is("crash_at_start")) abort();
}

size_t cudnnGetVersion(void) { return is("old") ? 90100 : 90801; }
const char* cudnnGetErrorString(int status) { return status == 3000 ? "CUDNN_STATUS_NOT_SUPPORTED" : "CUDNN_STATUS_BAD_PARAM"; }

int cudnnBackendCreateDescriptor(int type, void** descriptor) {
  struct descriptor* made = calloc(1, sizeof *made);
  made->type = type;
  *descriptor = made;
  return 0;
}
int cudnnBackendDestroyDescriptor(void* descriptor) {
  free(descriptor);
  return 0;
}
int cudnnBackendSetAttribute(void* descriptor, int name, int type, int64_t count, const void* elements) {
  struct descriptor* self = descriptor;
  (void)type;
  if (count < 0) return 2000;
  if (self->type == 5 && name == 401) self->engine = (*(struct descriptor* const*)elements)->engine;
  if (self->type == 38 && !strstr((const char*)elements, "\"deviceVer\":860")) return 2000;  // the tests' card: rtx3060
  return 0;
}
int cudnnBackendFinalize(void* descriptor) {
  struct descriptor* self = descriptor;
  if (self->type == 4) {
    if (is("crash")) abort();
    if (is("hang")) sleep(600);
    if (is("silent")) return 3000;
    if (is("fail")) return 2000;
  }
  return self->type == 5 && self->engine == 7 ? 3000 : 0;
}
int cudnnBackendGetAttribute(void* descriptor, int name, int type, int64_t requested, int64_t* count, void* elements) {
  struct descriptor* self = descriptor;
  (void)type;
  *count = 0;
  if (name == 202) {
    *count = 3;
    for (int64_t i = 0; i < 3 && i < requested; ++i) ((struct descriptor**)elements)[i]->engine = 7 + i;
  } else if (name == 300) {
    *count = 1;
    (*(struct descriptor**)elements)->engine = self->engine;
  } else if (name == 1301) {
    *count = 1;
    *(int64_t*)elements = self->engine;
  } else if (name == 1303 && self->engine == 8) {
    *count = 1;
    *(int32_t*)elements = 4;  // CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
  } else if (name == 402) {
    *count = 1;
    *(int64_t*)elements = self->engine == 8 ? (int64_t)32 << 20 : (int64_t)48 << 20;
  }
  return 0;
}
