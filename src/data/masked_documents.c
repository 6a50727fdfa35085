// SPDX-License-Identifier: Apache-2.0
#include "data/masked_documents.h"
#include "base/memory.h"
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 20, THREADS_MAX = 256 };

typedef struct {
  size_t begin, end;
} line_range;

typedef struct {
  int64_t length;
  tsr_document_place place;
  int32_t label;
} placed_document;

/* Whole lines of a file, and what they have become. */
typedef struct {
  const tsr_text_file *file;
  size_t begin, end;
  int file_number, first_line;
  int32_t *tokens; /* of all its documents; on the heap, as the others */
  uint8_t *trained;
  placed_document *documents;
  int64_t tokens_count, tokens_capacity, documents_count, documents_capacity;
  line_range bad[TSR_BAD_LINES_MAX]; /* that could not be encoded */
  int bad_count;
} block;

typedef struct {
  const tsr_line_encoder *encoder;
  block *blocks;
  int64_t blocks_count;
  atomic_llong next;
  atomic_int bad; /* lines */
} job;

int64_t tsr_document_targets(const tsr_masked_documents *c, int64_t document, int64_t length) {
  int64_t targets = 0, begin = c->begins[document];
  if (c->labels) return length > 0;
  for (int64_t i = begin + 1; i < begin + length; i++) targets += tsr_document_trains(c, i);
  return targets;
}

/* ---- blocks ---- */

static int64_t count_lines(const char *text, size_t length) {
  int64_t lines = 0;
  const char *end = text + length;
  while (text < end && (text = memchr(text, '\n', (size_t)(end - text)))) lines++, text++;
  return lines;
}

static size_t block_end(const tsr_text_file *file, size_t begin, size_t bytes) {
  if (file->length - begin <= bytes) return file->length;
  const char *at = file->text + begin + bytes;
  const char *line_end = memchr(at, '\n', file->length - begin - bytes);
  return line_end ? (size_t)(line_end - file->text) + 1 : file->length;
}

static void
split(tsr_arena *arena, job *j, const tsr_text_file *files, int count, size_t block_bytes) {
  int64_t most = 0;
  for (int i = 0; i < count; i++) most += (int64_t)(files[i].length / block_bytes) + 1;
  j->blocks = tsr_arena_array(arena, block, most);
  for (int i = 0; i < count; i++) {
    int line = 1;
    for (size_t at = 0, end; at < files[i].length; at = end) {
      end = block_end(&files[i], at, block_bytes);
      j->blocks[j->blocks_count++] =
          (block){.file = &files[i], .begin = at, .end = end, .file_number = i, .first_line = line};
      line += (int)count_lines(files[i].text + at, end - at);
    }
  }
  assert(j->blocks_count <= most);
}

/* Room for `more` elements behind `count`. */
static void *grow(void *items, size_t bytes, int64_t count, int64_t more, int64_t *capacity) {
  if (count + more <= *capacity) return items;
  *capacity = 2 * *capacity > count + more ? 2 * *capacity : count + more + 64;
  return tsr_memory_grow(items, bytes * (size_t)*capacity);
}

static void add_document(block *b, const tsr_masked_tokens *c, int line) {
  int64_t before = b->tokens_capacity, n = c->count; /* `trained` grows as `tokens` does */
  b->tokens = grow(b->tokens, sizeof *b->tokens, b->tokens_count, n, &b->tokens_capacity);
  b->trained = grow(b->trained, 1, b->tokens_count, n, &before);
  b->documents =
      grow(b->documents, sizeof *b->documents, b->documents_count, 1, &b->documents_capacity);
  for (int64_t i = 0; i < n; i++) {
    b->tokens[b->tokens_count + i] = c->tokens[i];
    b->trained[b->tokens_count + i] = c->trained[i] != 0;
  }
  b->documents[b->documents_count++] = (placed_document){n, {b->file_number, line}, c->label};
  b->tokens_count += n;
}

/* ---- encoding ---- */

static bool is_blank(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++)
    if (!strchr(" \t\r\n\v\f", text[i]) || !text[i]) return false;
  return true;
}

static void *open_state(const tsr_line_encoder *e) {
  return e->open_state ? e->open_state(e->context) : NULL;
}

static void close_state(const tsr_line_encoder *e, void *state) {
  if (e->close_state) e->close_state(state);
}

/* A line's error is only noted: it is reported when all threads are done, in the files' order. */
static void encode_line(job *j, void *state, block *b, line_range l, int number) {
  tsr_arena *arena = tsr_arena_new();
  tsr_masked_tokens tokens = {0};
  bool ok = j->encoder->encode(
      j->encoder->context, state, arena, b->file, l.begin, l.end - l.begin, &tokens,
      tsr_diags_new(arena));
  if (ok) add_document(b, &tokens, number);
  else if (b->bad_count < TSR_BAD_LINES_MAX) b->bad[b->bad_count++] = l;
  j->bad += !ok;
  tsr_arena_free(arena);
}

/* What is behind the bad lines that are reported need not be read. */
static void encode_block(job *j, void *state, block *b) {
  const char *text = b->file->text;
  int number = b->first_line;
  for (size_t at = b->begin, end; at < b->end && b->bad_count < TSR_BAD_LINES_MAX; at = end + 1) {
    const char *line_end = memchr(text + at, '\n', b->end - at);
    end = line_end ? (size_t)(line_end - text) : b->end;
    if (!is_blank(text + at, end - at)) encode_line(j, state, b, (line_range){at, end}, number);
    number++;
  }
}

/* Blocks are taken in their order, so those that are not taken are behind all bad lines. */
static void *run_thread(void *context) {
  job *j = context;
  void *state = open_state(j->encoder);
  while (j->bad < TSR_BAD_LINES_MAX) {
    int64_t i = atomic_fetch_add(&j->next, 1);
    if (i >= j->blocks_count) break;
    encode_block(j, state, &j->blocks[i]);
  }
  close_state(j->encoder, state);
  return NULL;
}

static int threads_of(int wanted, int64_t blocks) {
  cpu_set_t cores;
  if (!wanted) wanted = sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores);
  if (wanted > THREADS_MAX) wanted = THREADS_MAX;
  return wanted > blocks ? (int)blocks : wanted;
}

/* This thread works too; fewer than were asked for do as well. */
static void run_threads(job *j, int wanted) {
  pthread_t threads[THREADS_MAX];
  int started = 0;
  while (started + 1 < wanted && !pthread_create(&threads[started], NULL, run_thread, j)) started++;
  run_thread(j);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
}

/* ---- all of them ---- */

/* Errors that are not in a line, such as a mistake in what all lines are rendered with. */
typedef struct {
  const char *message;
  tsr_location location;
} common_error;

/* Whether the line has the same error as one before it, which is in another file. */
static bool is_repeated(const block *b, const tsr_diags *errors, common_error *last) {
  common_error e = {tsr_diags_first_error(errors), tsr_diags_first_location(errors)};
  if (e.location.file && !strcmp(e.location.file, b->file->path)) return false;
  bool same = last->message && !strcmp(e.message, last->message) &&
              e.location.line == last->location.line && e.location.col == last->location.col;
  *last = e;
  return same;
}

/* A line is encoded again for its message. */
static bool report(job *j, tsr_diags *diags) {
  const tsr_line_encoder *e = j->encoder;
  common_error last = {0};
  int reported = 0;
  if (!j->bad) return true;
  tsr_arena *arena = tsr_arena_new();
  void *state = open_state(e);
  for (int64_t i = 0; i < j->blocks_count; i++) {
    const block *b = &j->blocks[i];
    for (int k = 0; k < b->bad_count && reported < TSR_BAD_LINES_MAX; k++) {
      tsr_masked_tokens tokens;
      line_range l = b->bad[k];
      tsr_diags *errors = tsr_diags_new(arena);
      size_t length = l.end - l.begin;
      e->encode(e->context, state, arena, b->file, l.begin, length, &tokens, errors);
      if (is_repeated(b, errors, &last)) continue;
      e->encode(e->context, state, arena, b->file, l.begin, length, &tokens, diags);
      reported++;
    }
  }
  if (reported == TSR_BAD_LINES_MAX)
    tsr_diag_hint(diags, "no more than %d bad lines are reported", TSR_BAD_LINES_MAX);
  close_state(e, state);
  tsr_arena_free(arena);
  return false;
}

static void copy_tokens(const block *b, int64_t at, int32_t *tokens, uint8_t *trained) {
  if (b->tokens_count) memcpy(tokens + at, b->tokens, sizeof *tokens * (size_t)b->tokens_count);
  for (int64_t t = 0; t < b->tokens_count; t++)
    trained[(at + t) / 8] |= (uint8_t)(b->trained[t] << (at + t) % 8);
}

static void free_block(block *b) {
  free(b->tokens);
  free(b->trained);
  free(b->documents);
  b->tokens = NULL;
  b->trained = NULL;
  b->documents = NULL;
}

/* A block's memory is freed as soon as it is copied: there are many tokens. */
static void join(tsr_arena *arena, job *j, tsr_masked_documents *ret) {
  int64_t all = 0, at = 0, next = 0, count = 0;
  for (int64_t i = 0; i < j->blocks_count; i++) {
    all += j->blocks[i].tokens_count;
    count += j->blocks[i].documents_count;
  }
  int64_t *begins = tsr_arena_array(arena, int64_t, count + 1);
  int32_t *tokens = tsr_arena_array(arena, int32_t, all + 1);
  uint8_t *trained = tsr_arena_array(arena, uint8_t, all / 8 + 1);
  tsr_document_place *places = tsr_arena_array(arena, tsr_document_place, count + 1);
  int32_t *labels = NULL;
  if (j->encoder->has_labels) labels = tsr_arena_array(arena, int32_t, count + 1);
  for (int64_t i = 0; i < j->blocks_count; i++) {
    block *b = &j->blocks[i];
    copy_tokens(b, at, tokens, trained);
    for (int64_t d = 0; d < b->documents_count; d++) {
      begins[next] = at;
      if (labels) labels[next] = b->documents[d].label;
      places[next++] = b->documents[d].place;
      at += b->documents[d].length;
    }
    free_block(b);
  }
  begins[next] = at;
  *ret = (tsr_masked_documents){count, begins, tokens, trained, labels, places, NULL};
}

static const char *const *paths_of(tsr_arena *arena, const tsr_text_file *files, int count) {
  const char **paths = tsr_arena_array(arena, const char *, count + 1);
  for (int i = 0; i < count; i++) paths[i] = tsr_arena_strdup(arena, files[i].path);
  return paths;
}

bool tsr_masked_documents_read(
    tsr_arena *arena, const tsr_text_file *files, int files_count, const tsr_line_encoder *encoder,
    int threads, size_t block_bytes, tsr_masked_documents *ret, tsr_diags *diags) {
  job j = {.encoder = encoder};
  split(arena, &j, files, files_count, block_bytes ? block_bytes : BLOCK_BYTES);
  run_threads(&j, threads_of(threads, j.blocks_count));
  bool ok = report(&j, diags);
  if (ok) join(arena, &j, ret);
  if (ok) ret->paths = paths_of(arena, files, files_count);
  for (int64_t i = 0; i < j.blocks_count; i++) free_block(&j.blocks[i]);
  return ok;
}
