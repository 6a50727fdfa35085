// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hf_places.h"
#include "checkpoint/hf_class_find.h"
#include <string.h>

static const char rope_prefix[] = "rope.";
enum { ROPE_PREFIX = sizeof rope_prefix - 1 };

/* What transformers takes from the top level where the object does not have it. */
static bool is_outside(const char *name) {
  return !strcmp(name, "rope_theta") || !strcmp(name, "partial_rotary_factor");
}

/* "a.b" of an object. */
static const cJSON *walk(const tsr_hf_document *d, const cJSON *object, const char *place) {
  for (const char *dot; object && (dot = strchr(place, '.')); place = dot + 1)
    object = tsr_json_get(object, tsr_arena_strndup(d->arena, place, (size_t)(dot - place)));
  return object ? tsr_json_get(object, place) : NULL;
}

static const cJSON *get_rope(const tsr_hf_document *d, const char *name, const char **ret_name) {
  const cJSON *inside = walk(d, d->rope, name), *outside = tsr_json_get(d->root, name);
  if (!inside && !strcmp(name, "rope_type")) inside = tsr_json_get(d->rope, "type");
  *ret_name = tsr_arena_printf(d->arena, "%s.%s", d->rope_name, name);
  if (cJSON_IsNull(inside) && is_outside(name)) inside = NULL; /* was refused */
  bool first = !strcmp(name, "original_max_position_embeddings") && outside;
  if (!first && (inside || !is_outside(name))) return inside;
  *ret_name = name;
  return outside;
}

const cJSON *
tsr_hf_document_get(const tsr_hf_document *d, const char *place, const char **ret_name) {
  if (!strncmp(place, rope_prefix, ROPE_PREFIX)) return get_rope(d, place + ROPE_PREFIX, ret_name);
  *ret_name = place;
  return walk(d, d->root, place);
}

static int count_nodes(const cJSON *item, int most) {
  int count = 1;
  for (const cJSON *child = item->child; child && count < most; child = child->next)
    count += count_nodes(child, most - count);
  return count;
}

bool tsr_hf_is_same(const cJSON *a, const cJSON *b) {
  enum { NODES_MAX = 4096 }; /* the comparison of objects is quadratic in their members */
  bool small = count_nodes(a, NODES_MAX) < NODES_MAX && count_nodes(b, NODES_MAX) < NODES_MAX;
  return small && cJSON_Compare(a, b, true);
}

/* ---- the object of rotary positions ---- */

/* Whether a key of the class stands there, in that object in it unless that is NULL. */
static bool names_rope(const tsr_hf_class *class, const char *member) {
  size_t length = member ? strlen(member) : 0;
  for (int i = 0; i < class->keys_count; i++)
    for (int p = 0; p < class->keys[i].places_count; p++) {
      const char *place = class->keys[i].places[p];
      if (strncmp(place, rope_prefix, ROPE_PREFIX)) continue;
      if (!member ||
          (!strncmp(place + ROPE_PREFIX, member, length) && place[ROPE_PREFIX + length] == '.'))
        return true;
    }
  return false;
}

static bool has_nested(const tsr_hf_class *class) {
  for (int i = 0; i < class->keys_count; i++)
    for (int p = 0; p < class->keys[i].places_count; p++) {
      const char *place = class->keys[i].places[p];
      if (!strncmp(place, rope_prefix, ROPE_PREFIX) && strchr(place + ROPE_PREFIX, '.'))
        return true;
    }
  return false;
}

static bool check_member(
    const tsr_hf_document *d, const tsr_hf_class *class, bool by_layer, const cJSON *item,
    tsr_diags *diags) {
  const char *name = tsr_arena_printf(d->arena, "%s.%s", d->rope_name, item->string);
  if (cJSON_IsObject(item) ? !names_rope(class, item->string) : by_layer)
    return tsr_hf_unsupported(
        d->path, name, tsr_hf_describe(d->arena, item),
        by_layer ? "an object for each type of layer" : NULL, diags);
  if (!is_outside(item->string) || !cJSON_IsNull(item)) return true;
  return tsr_json_wrong(item, name, d->path, "a number", diags);
}

bool tsr_hf_document_open(
    tsr_arena *arena, const char *path, const cJSON *root, const tsr_hf_class *class,
    tsr_hf_document *ret, tsr_diags *diags) {
  const cJSON *newer = tsr_json_get(root, "rope_parameters"), *item;
  const cJSON *older = tsr_json_get(root, "rope_scaling");
  *ret = (tsr_hf_document){.arena = arena, .path = path, .root = root, .rope_name = "rope_scaling"};
  if (!names_rope(class, NULL)) return true;
  if (cJSON_IsNull(newer)) newer = NULL;
  if (cJSON_IsNull(older) || (cJSON_IsObject(older) && !older->child)) older = NULL;
  if (newer && older && !tsr_hf_is_same(newer, older))
    return tsr_diag_error(
        diags, TSR_NOWHERE, "'%s': rope_scaling and rope_parameters differ", path);
  if (newer) ret->rope_name = "rope_parameters";
  ret->rope = newer ? newer : older;
  if (!ret->rope) return true;
  if (!cJSON_IsObject(ret->rope)) {
    const char *what = tsr_hf_describe(arena, ret->rope);
    ret->rope = NULL;
    return tsr_hf_unsupported(path, ret->rope_name, what, "an object", diags);
  }
  bool ok = true, by_layer = newer && has_nested(class);
  cJSON_ArrayForEach(item, ret->rope) ok &= check_member(ret, class, by_layer, item, diags);
  return ok;
}
