// SPDX-License-Identifier: Apache-2.0
/* requires: the YAML of a machine description, or its name. produces: the machine, or every mistake
 * in it. */
#include "plan/machine.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "graph/graph.h"
#include "plan/machine_units.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
} reader;

enum { THREADS_MAX = 65536 };

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

/* ---- keys ---- */

/* A map without unknown keys. */
static bool check_map(
    const reader *r, const tsr_yaml *node, const char *what, const char *const *keys, int count) {
  if (node->kind != TSR_YAML_MAP)
    return tsr_diag_error(
        r->diags, node->location, "%s must be a map, found %s", what,
        tsr_yaml_describe(r->arena, node));
  bool ok = true;
  for (int i = 0; i < node->count; i++) {
    const char *key = node->keys[i]->text;
    bool known = false;
    for (int k = 0; k < count; k++) known |= !strcmp(key, keys[k]);
    if (known) continue;
    ok = tsr_diag_error(r->diags, node->keys[i]->location, "unknown key '%s' in %s", key, what);
    tsr_diag_nearest(r->diags, key, keys, count);
  }
  return ok;
}

/* The value of a map's key, NULL without one. What a map lacks is said at its key. */
static const tsr_yaml *get_section(const reader *r, const tsr_yaml *map, const char *key) {
  const tsr_yaml *node = tsr_yaml_get(map, key);
  if (!node || node->kind != TSR_YAML_MAP) return node;
  tsr_yaml *copy = tsr_arena_alloc(r->arena, sizeof *copy);
  *copy = *node;
  copy->location = tsr_yaml_key(map, key)->location;
  return copy;
}

/* `what` has no `key`; the hint shows one. */
static bool missing(
    const reader *r, tsr_location location, const char *what, const char *key,
    const char *example) {
  tsr_diag_error(r->diags, location, "%s has no %s", what, key);
  tsr_diag_hint(r->diags, "such as %s: %s", key, example);
  return false;
}

static bool
read_name(const reader *r, const tsr_yaml *map, const char *what, const char **ret_name) {
  const tsr_yaml *node = tsr_yaml_get(map, "name");
  if (!node) return missing(r, map->location, what, "name", "h100");
  *ret_name = node->text;
  if (node->kind == TSR_YAML_SCALAR && *node->text) return true;
  return tsr_diag_error(
      r->diags, node->location, "'name' must be a text that is not empty, found %s",
      tsr_yaml_describe(r->arena, node));
}

/* Leaves the value as it is when the key is absent. */
static bool read_optional(
    const reader *r, const tsr_yaml *map, const char *key, tsr_quantity kind, double *ret_value) {
  const tsr_yaml *node = tsr_yaml_get(map, key);
  return !node || tsr_quantity_read(r->arena, kind, key, node, ret_value, r->diags);
}

static bool read_quantity(
    const reader *r, const tsr_yaml *map, const char *what, const char *key, tsr_quantity kind,
    const char *example, double *ret_value) {
  if (!tsr_yaml_get(map, key)) return missing(r, map->location, what, key, example);
  return read_optional(r, map, key, kind, ret_value);
}

/* ---- device ---- */

static bool read_flops(const reader *r, const tsr_yaml *device, double *ret_flops) {
  const tsr_yaml *node = get_section(r, device, "flops");
  const char *keys[TSR_MACHINE_DTYPES];
  for (int t = 0; t < TSR_MACHINE_DTYPES; t++) keys[t] = tsr_machine_dtype_name(t);
  if (!node)
    return missing(
        r, device->location, "'device'", "flops", "{f32: 67TFLOP/s, bf16: 989.4TFLOP/s}");
  if (!check_map(r, node, "'flops'", keys, TSR_MACHINE_DTYPES)) return false;
  bool ok = tsr_yaml_get(node, "f32") || missing(r, node->location, "'flops'", "f32", "67TFLOP/s");
  for (int t = 0; t < TSR_MACHINE_DTYPES; t++)
    ok &= read_optional(r, node, keys[t], TSR_QUANTITY_FLOPS, &ret_flops[t]);
  return ok;
}

static bool read_efficiency(const reader *r, const tsr_yaml *device, tsr_machine *m) {
  static const char *const keys[] = {"products", "attention", "memory"};
  m->efficiency_products = m->efficiency_attention = m->efficiency_memory = 1;
  const tsr_yaml *node = tsr_yaml_get(device, "efficiency");
  if (!node) return true;
  if (!check_map(r, node, "'efficiency'", keys, COUNT(keys))) return false;
  bool ok = read_optional(r, node, keys[0], TSR_QUANTITY_FRACTION, &m->efficiency_products);
  ok &= read_optional(r, node, keys[1], TSR_QUANTITY_FRACTION, &m->efficiency_attention);
  ok &= read_optional(r, node, keys[2], TSR_QUANTITY_FRACTION, &m->efficiency_memory);
  return ok;
}

static bool read_threads(const reader *r, const tsr_yaml *device, int *ret_threads) {
  const tsr_yaml *node = tsr_yaml_get(device, "threads");
  int64_t threads = 0;
  if (!node || node->kind == TSR_YAML_NULL) return true;
  if (!tsr_yaml_int(node, &threads) || threads < 1 || threads > THREADS_MAX)
    return tsr_diag_error(
        r->diags, node->location, "'threads' must be an integer from 1 to %d, found %s",
        THREADS_MAX, tsr_yaml_describe(r->arena, node));
  *ret_threads = (int)threads;
  return true;
}

static bool read_device(const reader *r, const tsr_yaml *root, tsr_machine *m) {
  static const char *const keys[] = {"memory",         "memory_bandwidth", "flops",     "overhead",
                                     "host_bandwidth", "threads",          "efficiency"};
  const tsr_yaml *node = get_section(r, root, "device");
  if (!node)
    return missing(
        r, root->location, "the machine", "device",
        "{memory: 80GiB, memory_bandwidth: …, flops: …}");
  bool ok = check_map(r, node, "'device'", keys, COUNT(keys));
  if (node->kind != TSR_YAML_MAP) return false;
  double memory = 0;
  ok &= read_quantity(r, node, "'device'", "memory", TSR_QUANTITY_BYTES, "80GiB", &memory);
  m->memory = (int64_t)memory;
  ok &= read_quantity(
      r, node, "'device'", "memory_bandwidth", TSR_QUANTITY_RATE, "3.35TB/s", &m->memory_bandwidth);
  ok &= read_flops(r, node, m->flops);
  ok &= read_optional(r, node, "overhead", TSR_QUANTITY_SECONDS, &m->overhead);
  ok &= read_optional(r, node, "host_bandwidth", TSR_QUANTITY_RATE, &m->host_bandwidth);
  ok &= read_threads(r, node, &m->threads);
  ok &= read_efficiency(r, node, m);
  return ok;
}

/* ---- links ---- */

static bool read_devices(const reader *r, const tsr_yaml *map, int64_t *ret_devices) {
  const tsr_yaml *node = tsr_yaml_get(map, "devices");
  *ret_devices = 0;
  if (!node || node->kind == TSR_YAML_NULL) return true;
  if (tsr_yaml_int(node, ret_devices) && *ret_devices >= 2) return true;
  return tsr_diag_error(
      r->diags, node->location,
      "'devices' must be an integer from 2 on, or ~ for any number, found %s",
      tsr_yaml_describe(r->arena, node));
}

static bool read_within_host(const reader *r, const tsr_yaml *map, bool *ret_within) {
  const tsr_yaml *node = tsr_yaml_get(map, "within_host");
  if (!node || tsr_yaml_bool(node, ret_within)) return true;
  return tsr_diag_error(
      r->diags, node->location, "'within_host' must be true or false, found %s",
      tsr_yaml_describe(r->arena, node));
}

/* Whether the newest level can stand outside the one before it. */
static bool check_nesting(const reader *r, const tsr_yaml *map, const tsr_machine *m) {
  const tsr_machine_link *link = &m->links[m->links_count - 1], *inner = link - 1;
  for (int i = 0; i < m->links_count - 1; i++)
    if (!strcmp(m->links[i].name, link->name))
      return tsr_diag_error(
          r->diags, tsr_yaml_get(map, "name")->location, "two levels are called '%s'", link->name);
  if (m->links_count == 1) return true;
  if (!inner->devices) {
    tsr_diag_error(
        r->diags, map->location,
        "level '%s' stands outside '%s', which joins any number of devices", link->name,
        inner->name);
    tsr_diag_hint(r->diags, "set how many devices '%s' joins: devices: 8", inner->name);
    return false;
  }
  if (!link->devices || (link->devices > inner->devices && link->devices % inner->devices == 0))
    return true;
  bool more = link->devices > inner->devices;
  tsr_diag_error(
      r->diags, tsr_yaml_get(map, "devices")->location,
      "level '%s' joins %lld devices, %s the %lld of '%s' inside it", link->name,
      (long long)link->devices, more ? "which is no multiple of" : "not more than",
      (long long)inner->devices, inner->name);
  tsr_diag_hint(
      r->diags, "levels stand from the inside out, and 'devices' counts those of all inside");
  return false;
}

static bool read_link(const reader *r, const tsr_yaml *node, tsr_machine *m) {
  static const char *const keys[] = {"name",    "devices",    "bandwidth",
                                     "latency", "efficiency", "within_host"};
  if (m->links_count == TSR_MACHINE_LINKS_MAX)
    return tsr_diag_error(
        r->diags, node->location, "more than %d levels of links", TSR_MACHINE_LINKS_MAX);
  bool ok = check_map(r, node, "a level of 'links'", keys, COUNT(keys));
  if (node->kind != TSR_YAML_MAP) return false;
  tsr_machine_link *link = &m->links[m->links_count++];
  *link = (tsr_machine_link){.name = "", .efficiency = 1};
  bool placed = read_name(r, node, "the level", &link->name);
  placed &= read_devices(r, node, &link->devices);
  ok &= read_quantity(
      r, node, "the level", "bandwidth", TSR_QUANTITY_RATE, "450GB/s", &link->bandwidth);
  ok &= read_quantity(r, node, "the level", "latency", TSR_QUANTITY_SECONDS, "2us", &link->latency);
  ok &= read_optional(r, node, "efficiency", TSR_QUANTITY_FRACTION, &link->efficiency);
  ok &= read_within_host(r, node, &link->within_host);
  if (!placed) {
    m->links_count--; /* what stands outside cannot be compared with it */
    return false;
  }
  return ok & check_nesting(r, node, m);
}

static bool read_links(const reader *r, const tsr_yaml *root, tsr_machine *m) {
  const tsr_yaml *node = tsr_yaml_get(root, "links");
  if (!node || node->kind == TSR_YAML_NULL) return true;
  if (node->kind != TSR_YAML_LIST)
    return tsr_diag_error(
        r->diags, node->location, "'links' must be a list of levels, found %s",
        tsr_yaml_describe(r->arena, node));
  bool ok = true;
  for (int i = 0; i < node->count && i <= TSR_MACHINE_LINKS_MAX; i++)
    ok &= read_link(r, node->items[i], m);
  return ok;
}

/* ---- rates ---- */

/* "linear" or "linear.bf16". */
static bool
read_rate_key(const reader *r, const tsr_yaml *key, const tsr_machine *m, tsr_machine_rate *rate) {
  const char *dot = strchr(key->text, '.');
  rate->op = dot ? tsr_arena_strndup(r->arena, key->text, (size_t)(dot - key->text)) : key->text;
  rate->dtype = TSR_MACHINE_EVERY_DTYPE;
  const char *names[TSR_OPS];
  int op = 0;
  while (op < TSR_OPS && strcmp(tsr_op_name(op), rate->op)) op++;
  if (op == TSR_OPS) {
    for (int i = 0; i < TSR_OPS; i++) names[i] = tsr_op_name(i);
    tsr_diag_error(r->diags, key->location, "'rates' names an unknown op '%s'", rate->op);
    tsr_diag_nearest(r->diags, rate->op, names, TSR_OPS);
    return false;
  }
  if (tsr_op_facts(op) & TSR_FACT_COLLECTIVE && !m->threads) {
    tsr_diag_error(r->diags, key->location, "'%s' is no work of one device", rate->op);
    tsr_diag_hint(r->diags, "what collectives take follows from 'links'");
    return false;
  }
  for (int t = 0; dot && t < TSR_MACHINE_DTYPES; t++) {
    names[t] = tsr_machine_dtype_name(t);
    if (!strcmp(names[t], dot + 1)) rate->dtype = t;
  }
  if (!dot || rate->dtype != TSR_MACHINE_EVERY_DTYPE) return true;
  tsr_diag_error(r->diags, key->location, "'%s' names an unknown type '%s'", key->text, dot + 1);
  tsr_diag_nearest(r->diags, dot + 1, names, TSR_MACHINE_DTYPES);
  return false;
}

static bool read_rate(const reader *r, const tsr_yaml *key, const tsr_yaml *node, tsr_machine *m) {
  static const char *const keys[] = {"flops", "bytes", "call", "overhead"};
  tsr_machine_rate rate = {.overhead = -1};
  bool ok = read_rate_key(r, key, m, &rate);
  if (!check_map(r, node, "a rate", keys, COUNT(keys))) return false;
  if (!node->count)
    return missing(r, key->location, "the rate", "flops", "41TFLOP/s, or bytes, call or overhead");
  ok &= read_optional(r, node, "flops", TSR_QUANTITY_FLOPS, &rate.flops);
  ok &= read_optional(r, node, "bytes", TSR_QUANTITY_RATE, &rate.bytes);
  ok &= read_optional(r, node, "call", TSR_QUANTITY_SECONDS, &rate.call);
  ok &= read_optional(r, node, "overhead", TSR_QUANTITY_SECONDS, &rate.overhead);
  if (ok) tsr_machine_set_rate(r->arena, m, &rate);
  return ok;
}

static bool read_rates(const reader *r, const tsr_yaml *root, tsr_machine *m) {
  const tsr_yaml *node = tsr_yaml_get(root, "rates");
  if (!node || node->kind == TSR_YAML_NULL) return true;
  if (node->kind != TSR_YAML_MAP)
    return tsr_diag_error(
        r->diags, node->location, "'rates' must be a map of ops, found %s",
        tsr_yaml_describe(r->arena, node));
  bool ok = true;
  for (int i = 0; i < node->count; i++) ok &= read_rate(r, node->keys[i], node->items[i], m);
  return ok;
}

/* ---- the whole ---- */

static bool read_transport(const reader *r, const tsr_yaml *root, tsr_machine *m) {
  static const char *const words[] = {"nccl", "mpi"};
  const tsr_yaml *node = tsr_yaml_get(root, "transport");
  const char *text = node && node->kind == TSR_YAML_SCALAR ? node->text : "";
  m->has_nccl = !strcmp(text, "nccl");
  if (!node || m->has_nccl || !strcmp(text, "mpi")) return true;
  tsr_diag_error(
      r->diags, node->location, "'transport' must be nccl or mpi, found %s",
      tsr_yaml_describe(r->arena, node));
  tsr_diag_nearest(r->diags, text, words, 2);
  return false;
}

static bool
read_machine(tsr_arena *arena, const tsr_yaml *root, tsr_machine **ret_machine, tsr_diags *diags) {
  static const char *const keys[] = {"name", "doc", "transport", "device", "links", "rates"};
  reader r = {arena, diags};
  bool ok = check_map(&r, root, "a machine description", keys, COUNT(keys));
  if (root->kind != TSR_YAML_MAP) return false;
  tsr_machine *m = tsr_arena_alloc(arena, sizeof *m);
  m->doc = "";
  ok &= read_name(&r, root, "the machine", &m->name);
  const tsr_yaml *doc = tsr_yaml_get(root, "doc");
  if (doc) m->doc = doc->text ? doc->text : "";
  if (doc && doc->kind != TSR_YAML_SCALAR && doc->kind != TSR_YAML_NULL)
    ok = tsr_diag_error(
        diags, doc->location, "'doc' must be a text, found %s", tsr_yaml_describe(arena, doc));
  ok &= read_transport(&r, root, m);
  ok &= read_device(&r, root, m);
  ok &= read_links(&r, root, m);
  ok &= read_rates(&r, root, m);
  if (ok) *ret_machine = m;
  return ok;
}

bool tsr_machine_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_machine **ret_machine,
    tsr_diags *diags) {
  tsr_yaml *root;
  return tsr_yaml_parse(arena, file, text, length, &root, diags) &&
         read_machine(arena, root, ret_machine, diags);
}

bool tsr_machine_read(
    tsr_arena *arena, const char *path, tsr_location location, tsr_machine **ret_machine,
    tsr_diags *diags) {
  tsr_yaml *root;
  return tsr_yaml_read(arena, path, location, &root, diags) &&
         read_machine(arena, root, ret_machine, diags);
}

/* ---- by name ---- */

static int compare_names(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *folder_of(tsr_arena *arena, const char *share_folder) {
  return tsr_path_join(arena, share_folder, "configs/machines");
}

/* "x.yaml" files of the folder as "x". */
int tsr_machine_list(tsr_arena *arena, const char *share_folder, const char ***ret_names) {
  DIR *dir = tsr_disk_open_folder(folder_of(arena, share_folder));
  int count = 0, capacity = 0;
  *ret_names = NULL;
  for (struct dirent *e; dir && (e = readdir(dir));) {
    size_t length = strlen(e->d_name);
    if (length <= 5 || strcmp(e->d_name + length - 5, ".yaml") != 0) continue;
    tsr_arena_grow(arena, (void **)ret_names, sizeof **ret_names, count, &capacity);
    (*ret_names)[count++] = tsr_arena_strndup(arena, e->d_name, length - 5);
  }
  if (dir) closedir(dir);
  if (count) qsort(*ret_names, (size_t)count, sizeof **ret_names, compare_names);
  return count;
}

bool tsr_machine_find(
    tsr_arena *arena, const char *share_folder, const char *name, tsr_location location,
    const char **ret_path, tsr_diags *diags) {
  const char *shipped = tsr_arena_printf(arena, "%s/%s.yaml", folder_of(arena, share_folder), name);
  bool is_name = *name && !strchr(name, '/');
  *ret_path = is_name && tsr_file_exists(shipped) ? shipped : name;
  if (*name && tsr_file_exists(*ret_path)) return true;
  const char **names;
  int count = tsr_machine_list(arena, share_folder, &names);
  tsr_diag_error(diags, location, "there is no machine '%s'", name);
  const char *near = tsr_nearest(name, names, count);
  if (near) tsr_diag_hint(diags, "did you mean '%s'?", near);
  tsr_text list = {0};
  for (int i = 0; i < count; i++) tsr_text_add(&list, "%s%s", i ? ", " : "", names[i]);
  tsr_diag_hint(diags, "shipped: %s; or name a file", count ? list.data : "none");
  tsr_text_free(&list);
  if (is_name) tsr_diag_hint(diags, "looked for '%s' and for the file '%s'", shipped, name);
  return false;
}
