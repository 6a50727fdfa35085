// SPDX-License-Identifier: Apache-2.0
/* Reads a pipeline schedule from a file. */
#include "schedule/pipeline.h"
#include "base/file_read.h"
#include <ctype.h>
#include <string.h>

enum {
  FILE_BYTES_MAX = 64 << 20,
  NUMBER_MAX = 1000000,
  CHUNKS_MAX = 64, /* what a file may ask for: the check's tables grow with it */
};

typedef enum { KEY_STAGES, KEY_MICROBATCHES, KEY_CHUNKS, KEY_PLACEMENT, KEYS } key;
static const char *const key_names[KEYS] = {"stages", "microbatches", "chunks", "placement"};
static const char *const placements[] = {"loop", "v"};

/* A piece of the current line; `at` is not terminated. */
typedef struct {
  const char *at;
  int length;
} piece;

typedef struct {
  int stage;
  tsr_location location; /* of "stage 3" */
  tsr_action *actions;
  int count, capacity;
} stage_line;

typedef struct {
  tsr_arena *arena;
  tsr_diags *diags;
  const char *path, *line;
  int line_number;
  tsr_location given[KEYS]; /* where a key's value stands; line 0: nowhere */
  int values[KEYS];         /* 0: it was refused */
  stage_line *lines;
  int lines_count, lines_capacity;
  bool has_weights, ok;
  bool explained; /* what an action is: once in a file */
} reader;

/* ---- pieces ---------------------------------------------------------------------------------- */

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static piece trimmed(const char *begin, const char *end) {
  while (begin < end && is_blank(*begin)) begin++;
  while (end > begin && is_blank(end[-1])) end--;
  return (piece){begin, (int)(end - begin)};
}

/* Cuts the first word off `rest`; length 0 at the end. */
static piece next_word(piece *rest) {
  const char *end = rest->at + rest->length, *stop = rest->at;
  while (stop < end && !is_blank(*stop)) stop++;
  piece word = {rest->at, (int)(stop - rest->at)};
  *rest = trimmed(stop, end);
  return word;
}

static bool is_word(piece p, const char *word) {
  return (size_t)p.length == strlen(word) && !memcmp(p.at, word, (size_t)p.length);
}

static tsr_location place_of(const reader *r, piece p) {
  return (tsr_location){r->path, r->line_number, (int)(p.at - r->line) + 1, p.length};
}

/* For a message: short, and without what a terminal would obey. */
static const char *shown(const reader *r, piece p) {
  enum { BYTES_MAX = 40 };
  int length = p.length < BYTES_MAX ? p.length : BYTES_MAX;
  while (length && length < p.length && ((unsigned char)p.at[length] & 0xc0) == 0x80) length--;
  char *text = tsr_arena_strndup(r->arena, p.at, (size_t)length);
  for (int i = 0; i < length; i++)
    if (iscntrl((unsigned char)text[i])) text[i] = '?';
  return length < p.length ? tsr_arena_printf(r->arena, "%s…", text) : text;
}

/* Digits from `at` on; returns where they end, or NULL if there are none or too many. */
static const char *read_digits(const char *at, const char *end, int *ret_value) {
  if (at == end || !isdigit((unsigned char)*at)) return NULL;
  int value = 0;
  for (; at < end && isdigit((unsigned char)*at); at++)
    if ((value = value * 10 + (*at - '0')) > NUMBER_MAX) return NULL;
  *ret_value = value;
  return at;
}

static bool read_number(piece p, int *ret_value) {
  return read_digits(p.at, p.at + p.length, ret_value) == p.at + p.length;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void given_twice(reader *r, const char *name, tsr_location location, tsr_location first) {
  r->ok = tsr_diag_error(r->diags, location, "'%s' is given twice", name);
  tsr_diag_hint(r->diags, "first given at line %d, column %d", first.line, first.col);
}

static void read_value(reader *r, key k, piece name, piece value) {
  if (r->given[k].line) {
    given_twice(r, key_names[k], place_of(r, name), r->given[k]);
    return;
  }
  r->given[k] = place_of(r, value);
  if (k == KEY_PLACEMENT) {
    for (int i = 0; i < 2; i++)
      if (is_word(value, placements[i])) r->values[k] = i + 1;
    if (r->values[k]) return;
    r->ok = tsr_diag_error(r->diags, r->given[k], "unknown placement '%s'", shown(r, value));
    tsr_diag_nearest(r->diags, shown(r, value), placements, 2);
    return;
  }
  int max = k == KEY_CHUNKS ? CHUNKS_MAX : NUMBER_MAX, number = 0;
  if (read_number(value, &number) && number >= 1 && number <= max) r->values[k] = number;
  else
    r->ok = tsr_diag_error(
        r->diags, r->given[k], "%s: '%s' is not a whole number from 1 to %d", key_names[k],
        shown(r, value), max);
}

static bool read_action(piece word, tsr_action *ret_action) {
  static const char letters[] = "FBW";
  const char *end = word.at + word.length, *letter = strchr(letters, *word.at);
  if (!*word.at || !letter) return false;
  *ret_action = (tsr_action){.kind = (tsr_action_kind)(letter - letters)};
  const char *at = read_digits(word.at + 1, end, &ret_action->microbatch);
  if (at && at < end && *at == '.') at = read_digits(at + 1, end, &ret_action->chunk);
  return at == end;
}

static void read_actions(reader *r, stage_line *line, piece rest) {
  while (rest.length) {
    piece word = next_word(&rest);
    tsr_action action;
    if (!read_action(word, &action)) {
      r->ok = tsr_diag_error(r->diags, place_of(r, word), "'%s' is not an action", shown(r, word));
      if (!r->explained)
        tsr_diag_hint(
            r->diags,
            "an action is F, B or W, its microbatch and, from chunk 1 on, its chunk: F3, B0.1");
      r->explained = true;
      continue;
    }
    action.location = place_of(r, word);
    r->has_weights |= action.kind == TSR_ACTION_WEIGHTS;
    tsr_arena_grow(r->arena, (void **)&line->actions, sizeof action, line->count, &line->capacity);
    line->actions[line->count++] = action;
  }
}

static void read_stage(reader *r, piece name, int stage, piece rest) {
  tsr_arena_grow(
      r->arena, (void **)&r->lines, sizeof *r->lines, r->lines_count, &r->lines_capacity);
  stage_line *line = &r->lines[r->lines_count++];
  *line = (stage_line){.stage = stage, .location = place_of(r, name)};
  read_actions(r, line, rest);
}

/* What is near: a stage's line where a number follows, else a key. */
static void unknown_key(reader *r, piece name, piece word, piece number) {
  r->ok = tsr_diag_error(r->diags, place_of(r, name), "unknown key '%s'", shown(r, name));
  int stage;
  if (number.length && read_number(number, &stage)) {
    const char *wanted = tsr_arena_printf(r->arena, "stage %d", stage);
    tsr_diag_nearest(r->diags, shown(r, name), &wanted, 1);
  } else if (is_word(word, "stage")) {
    tsr_diag_hint(r->diags, "a stage's line begins with its number, from 0: 'stage 0:'");
  } else {
    tsr_diag_nearest(r->diags, shown(r, name), key_names, KEYS);
  }
}

static void read_line(reader *r, const char *end) {
  const char *comment = memchr(r->line, '#', (size_t)(end - r->line));
  piece whole = trimmed(r->line, comment ? comment : end);
  if (!whole.length) return;
  const char *colon = memchr(whole.at, ':', (size_t)whole.length);
  if (!colon) {
    r->ok = tsr_diag_error(r->diags, place_of(r, whole), "no ':' in this line");
    tsr_diag_hint(r->diags, "a line is a key and its value, as in 'stages: 4' or 'stage 0: F0 B0'");
    return;
  }
  piece name = trimmed(whole.at, colon), value = trimmed(colon + 1, whole.at + whole.length);
  for (int k = 0; k < KEYS; k++)
    if (is_word(name, key_names[k])) {
      read_value(r, k, name, value);
      return;
    }
  piece number = name, word = next_word(&number);
  int stage;
  if (is_word(word, "stage") && read_number(number, &stage)) read_stage(r, name, stage, value);
  else unknown_key(r, name, word, number);
}

static void read_lines(reader *r, const char *text, size_t length) {
  const char *end = text + length;
  for (const char *at = text; at < end;) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) stop = end;
    r->line = at;
    r->line_number++;
    read_line(r, stop);
    at = stop < end ? stop + 1 : end;
  }
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* A required count, which must be the run's. */
static void check_count(reader *r, key k, int wanted) {
  if (!r->given[k].line)
    r->ok = tsr_diag_error(
        r->diags, (tsr_location){.file = r->path}, "'%s: %d' is missing", key_names[k], wanted);
  else if (r->values[k] && r->values[k] != wanted)
    r->ok = tsr_diag_error(
        r->diags, r->given[k], "'%s' is %d, but the run has %d", key_names[k], r->values[k],
        wanted);
}

/* Puts the lines in the stages' order; each stage of the file has one. */
static stage_line **sort_lines(reader *r) {
  int stages = r->values[KEY_STAGES], missing = 0;
  stage_line **sorted = tsr_arena_array(r->arena, stage_line *, stages);
  for (int i = 0; i < r->lines_count; i++) {
    stage_line *line = &r->lines[i];
    if (line->stage < stages && !sorted[line->stage]) sorted[line->stage] = line;
    else if (line->stage < stages)
      given_twice(
          r, tsr_arena_printf(r->arena, "stage %d", line->stage), line->location,
          sorted[line->stage]->location);
    else
      r->ok = tsr_diag_error(
          r->diags, line->location, "stage %d is not one of 0 to %d (stages: %d)", line->stage,
          stages - 1, stages);
  }
  tsr_text names = {0};
  for (int s = 0; s < stages; s++)
    if (!sorted[s] && missing++ < 4)
      tsr_text_add(&names, "%s'stage %d:'", names.length ? ", " : "", s);
  if (missing > 4) tsr_text_add(&names, " and %d more", missing - 4);
  if (missing)
    r->ok = tsr_diag_error(
        r->diags, r->given[KEY_STAGES], "no line %s (stages: %d)", names.data, stages);
  tsr_text_free(&names);
  return sorted;
}

static tsr_pipeline *build(reader *r, stage_line **sorted) {
  tsr_pipeline *o = tsr_arena_alloc(r->arena, sizeof *o);
  *o = (tsr_pipeline){
      .name = r->path,
      .stages = r->values[KEY_STAGES],
      .chunks = r->given[KEY_CHUNKS].line ? r->values[KEY_CHUNKS] : 1,
      .microbatches = r->values[KEY_MICROBATCHES],
      .v_shaped = r->values[KEY_PLACEMENT] == 2,
      .splits_backward = r->has_weights,
  };
  o->counts = tsr_arena_array(r->arena, int, o->stages);
  o->actions = tsr_arena_array(r->arena, tsr_action *, o->stages);
  o->places = tsr_arena_array(r->arena, tsr_location, o->stages);
  for (int s = 0; s < o->stages; s++) {
    o->counts[s] = sorted[s]->count;
    o->actions[s] = sorted[s]->actions;
    o->places[s] = sorted[s]->location;
  }
  return o;
}

bool tsr_pipeline_read(
    tsr_arena *arena, const char *path, tsr_location location, int stages, int microbatches,
    tsr_pipeline **ret_order, tsr_diags *diags) {
  char *text;
  size_t length;
  if (!tsr_file_read(arena, path, FILE_BYTES_MAX, location, &text, &length, diags)) return false;
  tsr_diags_source(diags, path, text, length);
  reader r = {.arena = arena, .diags = diags, .path = tsr_arena_strdup(arena, path), .ok = true};
  read_lines(&r, text, length);
  check_count(&r, KEY_STAGES, stages);
  check_count(&r, KEY_MICROBATCHES, microbatches);
  stage_line **sorted = r.values[KEY_STAGES] ? sort_lines(&r) : NULL;
  if (!r.ok) return false; /* what is missing now may stand in what was not understood */
  tsr_pipeline *pipeline = build(&r, sorted);
  if (!tsr_pipeline_check(pipeline, diags)) return false;
  *ret_order = pipeline;
  return true;
}

void tsr_pipeline_print(const tsr_pipeline *pipeline, tsr_text *text) {
  tsr_text_add(text, "# ");
  for (const char *c = pipeline->name; *c; c++)
    tsr_text_add(text, "%c", iscntrl((unsigned char)*c) ? '?' : *c);
  tsr_text_add(text, "\nstages: %d\nmicrobatches: %d\n", pipeline->stages, pipeline->microbatches);
  if (pipeline->chunks > 1) tsr_text_add(text, "chunks: %d\n", pipeline->chunks);
  if (pipeline->v_shaped) tsr_text_add(text, "placement: v\n");
  for (int s = 0; s < pipeline->stages; s++) {
    tsr_text_add(text, "stage %d:", s);
    for (int i = 0; i < pipeline->counts[s]; i++)
      tsr_text_add(text, " %s", tsr_action_text(pipeline->actions[s][i]).text);
    tsr_text_add(text, "\n");
  }
}
