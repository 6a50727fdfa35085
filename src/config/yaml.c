// SPDX-License-Identifier: Apache-2.0
/* libyaml's events, turned into a tree of nodes. Aliases share the node that they name: the tree is
 * a graph without cycles, and the limits on depth and expansion bound every walk over it. */
#include "config/yaml.h"
#include "base/file_read.h"
#include "base/hash.h"
#include <string.h>
#include <yaml.h>

enum { DEPTH_MAX = 64, EXPANSION_MAX = 100000, FILE_BYTES_MAX = 64 << 20 };

/* A map from text to anything: keys of one YAML map, or anchors of the document. */
typedef struct {
  const char **keys;
  void **values;
  int count, capacity; /* capacity: 0 or a power of two, at most half full */
} table;

/* What a node costs when an alias repeats it. */
typedef struct {
  tsr_yaml node; /* first, so that a node's address is its measure's */
  int64_t nodes;
  int height;
} measured;

/* Where libyaml's count of characters is in the text's bytes. */
typedef struct {
  size_t chars, bytes;
  int line;
  size_t line_start;
} cursor;

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  const char *file, *text;
  size_t length;
  yaml_parser_t yaml;
  cursor at;
  table anchors; /* name → measured *, NULL while the anchored node is being read */
  int64_t expanded;
  int errors;
} reader;

static uint64_t hash_text(const char *text) {
  uint64_t hash = tsr_hash_fnv1a(text, strlen(text));
  hash = (hash ^ hash >> 32) * 11400714819323198485u; /* FNV leaves the last bytes in few bits */
  return hash >> 32;
}

static int table_slot(const table *t, const char *key) {
  int mask = t->capacity - 1, slot = (int)(hash_text(key) & (uint64_t)mask);
  while (t->keys[slot] && strcmp(t->keys[slot], key)) slot = (slot + 1) & mask;
  return slot;
}

static void table_set(tsr_arena *arena, table *t, const char *key, void *value) {
  if (t->count * 2 >= t->capacity) {
    table old = *t;
    *t = (table){.capacity = old.capacity ? old.capacity * 2 : 16};
    t->keys = tsr_arena_array(arena, const char *, t->capacity);
    t->values = tsr_arena_array(arena, void *, t->capacity);
    for (int i = 0; i < old.capacity; i++)
      if (old.keys[i]) table_set(arena, t, old.keys[i], old.values[i]);
  }
  int slot = table_slot(t, key);
  t->count += !t->keys[slot];
  t->keys[slot] = key;
  t->values[slot] = value;
}

static bool table_get(const table *t, const char *key, void **ret_value) {
  if (!t->capacity) return false;
  int slot = table_slot(t, key);
  *ret_value = t->values[slot];
  return t->keys[slot] != NULL;
}

/* Moves the cursor to the character and returns its location. libyaml counts characters; places
 * count bytes, and lines end with a line feed only, as editors see them. */
static tsr_location place_at(reader *r, size_t char_index, int length) {
  cursor *at = &r->at;
  if (char_index < at->chars) *at = (cursor){.line = 1};
  while (at->chars < char_index && at->bytes < r->length) {
    if (r->text[at->bytes] == '\n') {
      at->line++;
      at->line_start = at->bytes + 1;
    }
    at->bytes++;
    while (at->bytes < r->length && ((unsigned char)r->text[at->bytes] & 0xc0) == 0x80) at->bytes++;
    at->chars++;
  }
  return (tsr_location){r->file, at->line, (int)(at->bytes - at->line_start) + 1, length};
}

static tsr_location event_place(reader *r, const yaml_event_t *event) {
  tsr_location start = place_at(r, event->start_mark.index, 1);
  size_t from = r->at.bytes;
  tsr_location end = place_at(r, event->end_mark.index, 1);
  if (end.line == start.line && r->at.bytes > from) start.length = (int)(r->at.bytes - from);
  return start;
}

static bool report_syntax(reader *r) {
  const yaml_parser_t *y = &r->yaml;
  r->errors++;
  if (y->error == YAML_READER_ERROR) {
    tsr_location location = {r->file, 1, 1, 1};
    for (size_t i = 0; i < y->problem_offset && i < r->length; i++, location.col++)
      if (r->text[i] == '\n') location.line++, location.col = 0;
    return tsr_diag_error(r->diags, location, "not YAML: %s", y->problem);
  }
  if (y->error == YAML_MEMORY_ERROR)
    return tsr_diag_failure(r->diags, (tsr_location){r->file}, "out of memory while reading YAML");
  size_t context_line = y->context ? place_at(r, y->context_mark.index, 1).line : 0;
  tsr_location location = place_at(r, y->problem_mark.index, 1);
  tsr_diag_error(
      r->diags, location, "not YAML: %s%s%s", y->problem ? y->problem : "it cannot be read",
      y->context ? " " : "", y->context ? y->context : "");
  if (r->at.bytes < r->length && r->text[r->at.bytes] == '\t')
    tsr_diag_hint(r->diags, "indent with spaces, not with tabs");
  else if (context_line && (int)context_line != location.line)
    tsr_diag_hint(r->diags, "what is being read there began on line %zu", context_line);
  return false;
}

static bool next_event(reader *r, yaml_event_t *ret_event) {
  return yaml_parser_parse(&r->yaml, ret_event) ? true : report_syntax(r);
}

static bool read_node(reader *r, const yaml_event_t *event, int depth, measured **ret_node);

static bool is_null_text(const char *text) {
  static const char *const words[] = {"", "~", "null", "Null", "NULL"};
  for (int i = 0; i < 5; i++)
    if (!strcmp(text, words[i])) return true;
  return false;
}

/* Whether the tag adds nothing to the value; `!` and `!!str` make a string. */
static bool check_tag(reader *r, const char *tag, tsr_location location, bool *ret_string) {
  static const char prefix[] = "tag:yaml.org,2002:";
  static const char *const known[] = {"str", "int", "float", "bool", "null", "map", "seq"};
  *ret_string = false;
  if (!tag) return true;
  if (!strcmp(tag, "!")) return *ret_string = true;
  bool core = !strncmp(tag, prefix, sizeof prefix - 1);
  for (int i = 0; core && i < 7; i++) {
    if (strcmp(tag + sizeof prefix - 1, known[i])) continue;
    *ret_string = i == 0;
    return true;
  }
  r->errors++;
  return tsr_diag_error(
      r->diags, location, "unknown tag '%s%s'", core ? "!!" : "",
      core ? tag + sizeof prefix - 1 : tag);
}

static void read_scalar(reader *r, const yaml_event_t *event, measured *m) {
  const char *text = (const char *)event->data.scalar.value;
  tsr_yaml *node = &m->node;
  bool string = false;
  check_tag(r, (const char *)event->data.scalar.tag, node->location, &string);
  node->text_length = event->data.scalar.length;
  if (memchr(text, 0, node->text_length)) {
    r->errors++;
    tsr_diag_error(r->diags, node->location, "a text may not hold a NUL byte");
  }
  node->text = tsr_arena_strndup(r->arena, text, node->text_length);
  node->quoted = string || event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
  node->kind = TSR_YAML_SCALAR;
  if (!node->quoted && is_null_text(text)) {
    node->kind = TSR_YAML_NULL;
    node->text = "";
    node->text_length = 0;
  }
}

static void measure_child(measured *m, const measured *child) {
  m->nodes += child->nodes;
  if (child->height >= m->height) m->height = child->height + 1;
}

static bool read_list(reader *r, int depth, measured *m) {
  tsr_yaml *list = &m->node;
  list->kind = TSR_YAML_LIST;
  for (int capacity = 0;;) {
    yaml_event_t event;
    if (!next_event(r, &event)) return false;
    if (event.type == YAML_SEQUENCE_END_EVENT) {
      yaml_event_delete(&event);
      return true;
    }
    measured *item;
    bool ok = read_node(r, &event, depth, &item);
    yaml_event_delete(&event);
    if (!ok) return false;
    tsr_arena_grow(r->arena, (void **)&list->items, sizeof *list->items, list->count, &capacity);
    list->items[list->count++] = &item->node;
    measure_child(m, item);
  }
}

static bool is_merge_key(const tsr_yaml *key) {
  return key->kind == TSR_YAML_SCALAR && !key->quoted && !strcmp(key->text, "<<");
}

/* The entries of a map as written: `<<` still stands among them. */
static bool read_entries(reader *r, int depth, measured *m, tsr_yaml *raw) {
  for (int keys_capacity = 0, items_capacity = 0;;) {
    yaml_event_t event;
    if (!next_event(r, &event)) return false;
    if (event.type == YAML_MAPPING_END_EVENT) {
      yaml_event_delete(&event);
      return true;
    }
    measured *key, *value;
    bool ok = read_node(r, &event, depth, &key);
    yaml_event_delete(&event);
    if (!ok || !next_event(r, &event)) return false;
    ok = read_node(r, &event, depth, &value);
    yaml_event_delete(&event);
    if (!ok) return false;
    measure_child(m, key);
    measure_child(m, value);
    if (key->node.kind != TSR_YAML_SCALAR) {
      r->errors++;
      tsr_diag_error(
          r->diags, key->node.location, "a map's key must be a text, found %s",
          tsr_yaml_describe(r->arena, &key->node));
      continue;
    }
    tsr_arena_grow(r->arena, (void **)&raw->keys, sizeof *raw->keys, raw->count, &keys_capacity);
    tsr_arena_grow(r->arena, (void **)&raw->items, sizeof *raw->items, raw->count, &items_capacity);
    raw->keys[raw->count] = &key->node;
    raw->items[raw->count++] = &value->node;
  }
}

typedef struct {
  tsr_yaml *map;
  int keys_capacity, items_capacity;
  table seen;
} entries;

static void add_entry(reader *r, entries *e, tsr_yaml *key, tsr_yaml *value) {
  tsr_yaml *map = e->map;
  tsr_arena_grow(r->arena, (void **)&map->keys, sizeof *map->keys, map->count, &e->keys_capacity);
  tsr_arena_grow(
      r->arena, (void **)&map->items, sizeof *map->items, map->count, &e->items_capacity);
  map->keys[map->count] = key;
  map->items[map->count++] = value;
}

static void merge_map(reader *r, entries *e, const tsr_yaml *merged, tsr_location location) {
  if (merged->kind != TSR_YAML_MAP) {
    r->errors++;
    tsr_diag_error(
        r->diags, location, "'<<' needs a map or a list of maps, found %s",
        tsr_yaml_describe(r->arena, merged));
    return;
  }
  for (int i = 0; i < merged->count; i++) {
    void *before;
    if (table_get(&e->seen, merged->keys[i]->text, &before)) continue;
    table_set(r->arena, &e->seen, merged->keys[i]->text, merged->keys[i]);
    add_entry(r, e, merged->keys[i], merged->items[i]);
  }
}

/* Own keys win over merged ones, wherever `<<` stands; of merged maps the first wins
 * (https://yaml.org/type/merge.html). */
static bool read_map(reader *r, int depth, measured *m) {
  tsr_yaml raw = {0};
  m->node.kind = TSR_YAML_MAP;
  if (!read_entries(r, depth, m, &raw)) return false;
  entries e = {.map = &m->node};
  for (int i = 0; i < raw.count; i++) {
    const tsr_yaml *key = raw.keys[i];
    void *before;
    if (table_get(&e.seen, key->text, &before)) {
      r->errors++;
      tsr_diag_error(r->diags, key->location, "key '%s' is given twice", key->text);
      tsr_diag_hint(r->diags, "first given on line %d", ((tsr_yaml *)before)->location.line);
      raw.keys[i] = NULL;
    } else table_set(r->arena, &e.seen, key->text, raw.keys[i]);
  }
  for (int i = 0; i < raw.count; i++) {
    tsr_yaml *key = raw.keys[i], *value = raw.items[i];
    if (!key) continue;
    if (!is_merge_key(key)) add_entry(r, &e, key, value);
    else if (value->kind == TSR_YAML_LIST)
      for (int k = 0; k < value->count; k++) merge_map(r, &e, value->items[k], key->location);
    else merge_map(r, &e, value, key->location);
  }
  return true;
}

static bool
read_alias(reader *r, const char *name, tsr_location location, int depth, measured **ret_node) {
  void *found;
  if (!table_get(&r->anchors, name, &found) || !found) {
    r->errors++;
    tsr_diag_error(r->diags, location, "unknown anchor '%s'", name);
    tsr_diag_hint(r->diags, "an anchor '&%s' must end before '*%s' names it", name, name);
    *ret_node = tsr_arena_alloc(r->arena, sizeof **ret_node);
    (*ret_node)->node = (tsr_yaml){.location = location, .text = ""};
    return true;
  }
  measured *m = found;
  r->expanded += m->nodes;
  *ret_node = m;
  if (r->expanded <= EXPANSION_MAX && depth + m->height <= DEPTH_MAX) return true;
  r->errors++;
  return r->expanded > EXPANSION_MAX
             ? tsr_diag_error(
                   r->diags, location, "aliases repeat more than %d nodes", EXPANSION_MAX)
             : tsr_diag_error(r->diags, location, "nesting is deeper than %d", DEPTH_MAX);
}

/* `depth` counts the collections around the node. */
static bool read_node(reader *r, const yaml_event_t *event, int depth, measured **ret_node) {
  tsr_location location = event_place(r, event);
  if (event->type == YAML_ALIAS_EVENT)
    return read_alias(r, (const char *)event->data.alias.anchor, location, depth, ret_node);
  bool scalar = event->type == YAML_SCALAR_EVENT, list = event->type == YAML_SEQUENCE_START_EVENT;
  const char *anchor = (const char *)(scalar ? event->data.scalar.anchor
                                      : list ? event->data.sequence_start.anchor
                                             : event->data.mapping_start.anchor);
  const char *tag =
      (const char *)(list ? event->data.sequence_start.tag : event->data.mapping_start.tag);
  bool string;
  if (!scalar) check_tag(r, tag, location, &string);
  if (!scalar && depth == DEPTH_MAX) {
    r->errors++;
    return tsr_diag_error(r->diags, location, "nesting is deeper than %d", DEPTH_MAX);
  }
  measured *m = tsr_arena_alloc(r->arena, sizeof *m);
  m->nodes = 1;
  m->node.location = location;
  m->node.text = "";
  if (anchor) {
    anchor = tsr_arena_strdup(r->arena, anchor);
    table_set(r->arena, &r->anchors, anchor, NULL);
  }
  *ret_node = m;
  bool ok = true;
  if (scalar) read_scalar(r, event, m);
  else ok = list ? read_list(r, depth + 1, m) : read_map(r, depth + 1, m);
  if (ok && anchor) table_set(r->arena, &r->anchors, anchor, m);
  return ok;
}

/* Stream start, document, stream end. An empty stream is a null document. */
static bool read_stream(reader *r, tsr_yaml **ret_root) {
  bool have_root = false;
  measured *empty = tsr_arena_alloc(r->arena, sizeof *empty);
  empty->node = (tsr_yaml){.location = {r->file, 1, 1, 1}, .text = ""};
  *ret_root = &empty->node;
  for (;;) {
    yaml_event_t event;
    if (!next_event(r, &event)) return false;
    bool ok = true, end = event.type == YAML_STREAM_END_EVENT;
    if (event.type == YAML_DOCUMENT_START_EVENT && have_root) {
      r->errors++;
      ok = tsr_diag_error(
          r->diags, event_place(r, &event), "a second document begins here, a file may hold one");
    } else if (
        event.type == YAML_SCALAR_EVENT || event.type == YAML_ALIAS_EVENT ||
        event.type == YAML_SEQUENCE_START_EVENT || event.type == YAML_MAPPING_START_EVENT) {
      measured *root;
      ok = read_node(r, &event, 0, &root);
      if (ok) *ret_root = &root->node;
      have_root = true;
    }
    yaml_event_delete(&event);
    if (!ok || end) return ok;
  }
}

bool tsr_yaml_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_yaml **ret_root,
    tsr_diags *diags) {
  static const char byte_order_mark[] = "\xef\xbb\xbf"; /* of UTF-8; editors do not show it */
  if (length >= 3 && !memcmp(text, byte_order_mark, 3)) text += 3, length -= 3;
  reader r = {.arena = arena, .diags = diags, .text = text, .length = length, .at = {.line = 1}};
  r.file = tsr_arena_strdup(arena, file);
  *ret_root = NULL;
  tsr_diags_source(diags, file, text, length);
  if (!yaml_parser_initialize(&r.yaml))
    return tsr_diag_failure(diags, (tsr_location){r.file}, "out of memory while reading YAML");
  yaml_parser_set_input_string(&r.yaml, (const unsigned char *)text, length);
  yaml_parser_set_encoding(&r.yaml, YAML_UTF8_ENCODING);
  bool ok = read_stream(&r, ret_root);
  yaml_parser_delete(&r.yaml);
  return ok && !r.errors;
}

bool tsr_yaml_read(
    tsr_arena *arena, const char *path, tsr_location asked_at, tsr_yaml **ret_root,
    tsr_diags *diags) {
  char *text;
  size_t length;
  *ret_root = NULL;
  return tsr_file_read(arena, path, FILE_BYTES_MAX, asked_at, &text, &length, diags) &&
         tsr_yaml_parse(arena, path, text, length, ret_root, diags);
}
