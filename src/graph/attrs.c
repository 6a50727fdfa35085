/* Attribute names and defaults, read once from ops.def's attribute column. */
#include "graph/infer.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char *const specs[] = {
#define OP(id, name, min, max, outputs, attrs, ...) attrs,
#include "graph/ops.def"
#undef OP
};

enum { NAME_MAX_BYTES = 24 };
typedef struct {
  int count;
  char name[TSR_ATTRS_MAX][NAME_MAX_BYTES];
  double value[TSR_ATTRS_MAX];
  bool required[TSR_ATTRS_MAX];
} attrs;

static attrs table[TSR_OPS];

static void read_table(void) {
  for (int op = 0; op < TSR_OPS; op++) {
    attrs *a = &table[op];
    for (const char *at = specs[op]; *at;) {
      size_t length = strcspn(at, "= ");
      memcpy(a->name[a->count], at, length);
      at += length;
      a->required[a->count] = *at != '=';
      if (*at == '=') a->value[a->count] = strtod(at + 1, (char **)&at);
      at += strspn(at, " ");
      a->count++;
    }
  }
}

/* Threads may build graphs at the same time. */
static const attrs *read_attrs(tsr_op op) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_table);
  return &table[op];
}

int tsr_op_attr(tsr_op op, const char *name) {
  const attrs *a = read_attrs(op);
  for (int i = 0; i < a->count; i++)
    if (!strcmp(a->name[i], name)) return i;
  return -1;
}

int tsr_op_attrs(
    tsr_op op, const char *names[TSR_ATTRS_MAX], double defaults[TSR_ATTRS_MAX],
    bool required[TSR_ATTRS_MAX]) {
  const attrs *a = read_attrs(op);
  for (int i = 0; i < a->count; i++) {
    names[i] = a->name[i];
    defaults[i] = a->value[i];
    required[i] = a->required[i];
  }
  return a->count;
}

void tsr_op_defaults(tsr_op op, double attr[TSR_ATTRS_MAX]) {
  memcpy(attr, read_attrs(op)->value, sizeof(double) * TSR_ATTRS_MAX);
}
