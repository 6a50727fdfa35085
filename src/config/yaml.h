// SPDX-License-Identifier: Apache-2.0
/* YAML documents with places: libyaml's events turned into a tree.
 *
 * YAML 1.2 core scalars (so `3e-5` is a number and `yes` a string), but the integers of YAML 1.1
 * (so `017` is 15 and `0o17` a string); anchors, aliases and merge keys
 * (`<<`) work; duplicate keys, more than one document, nesting beyond 64 and an alias expansion
 * beyond 100,000 nodes are errors with their place. */
#ifndef TSR_CONFIG_YAML_H
#define TSR_CONFIG_YAML_H
#include "base/diag.h"
#include <stdint.h>

typedef enum { TSR_YAML_NULL, TSR_YAML_SCALAR, TSR_YAML_LIST, TSR_YAML_MAP } tsr_yaml_kind;

typedef struct tsr_yaml tsr_yaml;
struct tsr_yaml {
  tsr_yaml_kind kind;
  tsr_location location; /* of the value's first byte */
  const char *text;      /* scalar: its text; "" for null */
  size_t text_length;
  bool quoted;      /* scalar: written with quotes or as a block, so it is a string */
  int count;        /* list: items; map: entries, in file order, merge keys resolved */
  tsr_yaml **items; /* list items or map values */
  tsr_yaml **keys;  /* map keys (scalars), with places */
};

/* Parses `text` (registers it as a source of `diags` under the name `file`). */
bool tsr_yaml_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_yaml **ret_root,
    tsr_diags *diags);
bool tsr_yaml_read(
    tsr_arena *arena, const char *path, tsr_location asked_at, tsr_yaml **ret_root,
    tsr_diags *diags);

/* The value of a map's key, or NULL. */
tsr_yaml *tsr_yaml_get(const tsr_yaml *map, const char *key);
/* The key node of a map's entry, or NULL. */
tsr_yaml *tsr_yaml_key(const tsr_yaml *map, const char *key);

/* Typed reading without diagnostics: false when the scalar is not of that type. Quoted scalars are
 * strings only. Integers: decimal, 0x, 0b and octal (017), with `_` between digits and an optional
 * sign; floats: also .inf and .nan. */
bool tsr_yaml_int(const tsr_yaml *node, int64_t *ret_value);
bool tsr_yaml_int_text(const char *text, int64_t *ret_value);
bool tsr_yaml_float(const tsr_yaml *node, double *ret_value);
bool tsr_yaml_bool(const tsr_yaml *node, bool *ret_value);

/* "a list", "a map", "the integer 3", "the text 'x'", "nothing": for messages. */
const char *tsr_yaml_describe(tsr_arena *arena, const tsr_yaml *node);

#endif
