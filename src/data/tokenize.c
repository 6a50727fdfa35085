// SPDX-License-Identifier: Apache-2.0
#include "data/tokenize.h"
#include "base/command_progress.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/folder_lock.h"
#include "base/new_file.h"
#include "data/text_check.h"
#include "data/sources.h"
#include "data/overwrite_check.h"
#include "data/tokenize_block.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

const char *const tsr_tokens_as_names[] = {"llmc", "nanogpt", "megatron", NULL};

enum { THREADS_MAX = 512 };

typedef struct {
  tsr_arena *arena;
  const tsr_tokenize_options *options;
  tsr_diags *diags;
  tsr_tokenize_rules rules;
  tsr_tokenize_file *files;
  int files_count, files_capacity;
  tsr_token_writer *writer;
  int64_t bytes_total;
  double start;

  pthread_mutex_t lock;
  pthread_cond_t turn;
  /* Under the lock: which block is next, and whose turn it is to write. */
  int file;
  size_t at, block_bytes;
  int64_t next, written;
  bool failed;
  /* Of whose turn it is. */
  int64_t documents, skipped;
  tsr_location first_skipped;
} job;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- inputs ---- */

static bool add_file(job *j, const char *path) {
  tsr_file_map map;
  if (!tsr_file_map_open(path, 0, TSR_NOWHERE, &map, j->diags)) return false;
  tsr_tokenize_file file = {
      {path, map.bytes, map.length},
      tsr_path_ends(path, ".jsonl") || tsr_path_ends(path, ".ndjson")};
  tsr_arena_grow(j->arena, (void **)&j->files, sizeof file, j->files_count, &j->files_capacity);
  j->files[j->files_count++] = file;
  j->bytes_total += (int64_t)map.length;
  return file.is_jsonl || tsr_content_check_kind(&file.text, TSR_NOWHERE, j->diags);
}

/* Options of JSONL would be ignored. */
static bool check_jsonl(const job *j) {
  const tsr_tokenize_options *o = j->options;
  if (!o->jsonl_key && !o->skips_lines) return true;
  for (int i = 0; i < j->files_count; i++)
    if (j->files[i].is_jsonl) return true;
  return tsr_diag_error(
      j->diags, TSR_NOWHERE, "%s goes with a .jsonl or .ndjson file, and no input is one",
      o->jsonl_key ? "--jsonl-key" : "--skip-bad-lines");
}

static bool open_inputs(job *j) {
  bool ok = true;
  for (int i = 0; i < j->options->inputs_count; i++) {
    const char **paths;
    int count = 0;
    ok = tsr_text_files_find(
             j->arena, j->options->inputs[i], TSR_NOWHERE, &paths, &count, j->diags) &&
         ok;
    for (int k = 0; k < count; k++) ok = add_file(j, paths[k]) && ok;
  }
  return ok;
}

static void close_inputs(job *j) {
  for (int i = 0; i < j->files_count; i++) {
    const tsr_text_file *t = &j->files[i].text;
    tsr_file_map_close(&(tsr_file_map){t->text, t->length});
  }
}

/* ---- rules ---- */

static bool makes_chars(const job *j) {
  return j->options->tokenizer.kind == TSR_TOKENIZER_CHAR && !j->options->tokenizer.chars;
}

static const char *chars_path(const job *j) {
  return tsr_arena_printf(j->arena, "%s.chars.txt", j->options->out);
}

/* A file of characters without its tokens is not this command's. */
static bool check_chars(const job *j) {
  const char *tokens = tsr_token_writer_path(j->writer);
  if (!makes_chars(j) || j->options->overwrites || !tsr_file_exists(chars_path(j))) return true;
  if (tsr_file_exists(tokens)) return tsr_chars_check_replaced(chars_path(j), j->diags);
  return tsr_diag_error(
      j->diags, TSR_NOWHERE, "'%s' is there without '%s': it is not overwritten", chars_path(j),
      tokens);
}

/* The characters that a char tokenizer found are kept beside the tokens, which mean nothing without
 * them. The file has its name with the tokens'. */
static bool write_chars(const job *j, tsr_new_file *ret) {
  const tsr_tokenizer *tokenizer = &j->rules.tokenizer;
  tsr_text text = {0};
  for (int32_t i = 0; i < tokenizer->vocab_size; i++) tsr_tokenizer_decode(tokenizer, &i, 1, &text);
  bool ok = tsr_new_file_open(chars_path(j), ret, j->diags) &&
            tsr_new_file_write(ret, text.data ? text.data : "", text.length, j->diags);
  tsr_text_free(&text);
  return ok;
}

static bool finish(const job *j) {
  tsr_new_file chars;
  if (!makes_chars(j)) return tsr_token_writer_finish(j->writer, NULL, j->diags);
  if (write_chars(j, &chars)) return tsr_token_writer_finish(j->writer, &chars, j->diags);
  tsr_token_writer_abandon(j->writer);
  return false;
}

/* A file that has become shorter reads as zeros: that is the error then, not the zeros. */
static bool check_bytes(const job *j, const tsr_text_file *text) {
  tsr_diags *unsaid = tsr_diags_new(j->arena);
  return tsr_content_check_bytes(text, unsaid) ||
         (tsr_file_maps_check(j->diags) && tsr_content_check_bytes(text, j->diags));
}

static bool make_chars(job *j) {
  tsr_text_file *texts = tsr_arena_array(j->arena, tsr_text_file, j->files_count + 1);
  bool ok = true;
  for (int i = 0; i < j->files_count; i++) {
    texts[i] = j->files[i].text;
    if (!j->files[i].is_jsonl) ok = check_bytes(j, &texts[i]) && ok;
    if (!j->files[i].is_jsonl) continue;
    tsr_diag_error(
        j->diags, TSR_NOWHERE, "a char tokenizer takes its characters from texts, not from '%s'",
        texts[i].path);
    tsr_diag_hint(j->diags, "--tokenizer byte, or a tokenizer.json");
    return false;
  }
  return ok && tsr_tokenizer_char(j->arena, texts, j->files_count, &j->rules.tokenizer, j->diags);
}

static bool make_rules(job *j) {
  const tsr_tokenize_options *o = j->options;
  tsr_tokenize_rules *r = &j->rules;
  *r = (tsr_tokenize_rules){j->arena, .tokenizer = o->tokenizer, .end_of_text = o->end_of_text};
  r->jsonl_key = o->jsonl_key ? o->jsonl_key : "text";
  r->skips_lines = o->skips_lines;
  if (makes_chars(j) && !make_chars(j)) return false;
  if (r->end_of_text == -1) r->end_of_text = tsr_tokenizer_end_of_text(&r->tokenizer);
  r->is_wide = r->tokenizer.vocab_size > 65536 || r->end_of_text > 65535;
  r->has_cuts = tsr_tokenize_has_cuts(&r->tokenizer);
  return true;
}

/* ---- threads ---- */

/* The next block, without waiting; false: there is none. */
static bool take_block(job *j, tsr_tokenize_block *ret, int64_t *ret_number) {
  pthread_mutex_lock(&j->lock);
  while (j->file < j->files_count && j->at == j->files[j->file].text.length) {
    j->file++;
    j->at = 0;
  }
  bool found = !j->failed && j->file < j->files_count;
  if (found) {
    const tsr_tokenize_file *file = &j->files[j->file];
    *ret = (tsr_tokenize_block){file, j->at, 0};
    ret->end = j->at = tsr_tokenize_block_end(&j->rules, file, j->at, j->block_bytes);
    *ret_number = j->next++;
  }
  pthread_mutex_unlock(&j->lock);
  return found;
}

/* Blocks are written in their order, one thread at a time; false: one before this has failed. */
static bool wait_for_turn(job *j, int64_t number) {
  pthread_mutex_lock(&j->lock);
  while (!j->failed && j->written != number) pthread_cond_wait(&j->turn, &j->lock);
  bool ok = !j->failed;
  pthread_mutex_unlock(&j->lock);
  return ok;
}

static void end_turn(job *j, bool ok) {
  pthread_mutex_lock(&j->lock);
  j->written++;
  j->failed = !ok;
  pthread_cond_broadcast(&j->turn);
  pthread_mutex_unlock(&j->lock);
}

static bool write_block(job *j, const tsr_tokenize_process *w) {
  const char *bytes = (const char *)w->tokens;
  size_t width = w->rules->is_wide ? 4 : 2;
  int64_t at = 0;
  for (int i = 0; i <= w->ends_count; i++) {
    int64_t end = i < w->ends_count ? w->ends[i] : w->count;
    if (end > at &&
        !tsr_token_writer_add(j->writer, bytes + (size_t)at * width, end - at, j->diags))
      return false;
    if (i < w->ends_count && !tsr_token_writer_end_document(j->writer, j->diags)) return false;
    at = end;
  }
  j->documents += w->ends_count;
  return true;
}

static void note_skipped(job *j, const tsr_tokenize_process *w, const tsr_tokenize_file *file) {
  if (w->skipped && !j->skipped)
    j->first_skipped = tsr_text_file_place(&file->text, w->first_skipped, 1, j->diags);
  j->skipped += w->skipped;
}

static bool is_stopped(const job *j) { return j->options->stop && *j->options->stop; }

/* An error is found again when it is the block's turn, so that the first in the inputs is the one
 * that is told, and by one thread; but in a file that has become shorter, which reads as zeros,
 * that is the error. */
static void work(job *j, tsr_tokenize_process *w) {
  tsr_diags *unsaid = tsr_diags_new(w->arena);
  tsr_tokenize_block block;
  int64_t number;
  while (take_block(j, &block, &number)) {
    bool ok = tsr_tokenize_block_encode(w, &block, false, unsaid);
    if (!wait_for_turn(j, number)) return;
    if (is_stopped(j)) {
      ok = false;
    } else if (!ok) {
      if (tsr_file_maps_check(j->diags)) tsr_tokenize_block_encode(w, &block, true, j->diags);
    } else {
      ok = write_block(j, w);
      note_skipped(j, w, block.file);
      tsr_command_progress_add((int64_t)(block.end - block.begin));
    }
    end_turn(j, ok);
  }
}

static void *run_thread(void *context) {
  job *j = context;
  tsr_tokenize_process process;
  tsr_tokenize_process_open(&j->rules, &process);
  work(j, &process);
  tsr_tokenize_process_close(&process);
  return NULL;
}

static int threads_of(const tsr_tokenize_options *o) {
  cpu_set_t cores;
  int threads = o->threads;
  if (!threads) threads = sched_getaffinity(0, sizeof cores, &cores) ? 1 : CPU_COUNT(&cores);
  return threads < THREADS_MAX ? threads : THREADS_MAX;
}

/* This thread works too; fewer than were asked for do as well. */
static bool run_threads(job *j) {
  pthread_t threads[THREADS_MAX];
  int started = 0, wanted = threads_of(j->options);
  pthread_mutex_init(&j->lock, NULL);
  pthread_cond_init(&j->turn, NULL);
  tsr_command_progress_begin("tokenizing", j->bytes_total, NULL);
  while (started + 1 < wanted && !pthread_create(&threads[started], NULL, run_thread, j)) started++;
  run_thread(j);
  for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
  tsr_command_progress_end();
  pthread_cond_destroy(&j->turn);
  pthread_mutex_destroy(&j->lock);
  return !j->failed;
}

/* ---- the command ---- */

static void report(const job *j, int64_t tokens, const char *path) {
  double seconds = now() - j->start, megabytes = (double)j->bytes_total / 1e6;
  if (j->options->quiet) return;
  printf(
      "%s: %s tokens of %d bytes, %s documents\n", path, tsr_text_count(tokens).text,
      j->rules.is_wide ? 4 : 2, tsr_text_count(j->documents).text);
  printf(
      "read %.1f MB in %.2f s: %.1f MB/s\n", megabytes, seconds,
      megabytes / (seconds > 1e-9 ? seconds : 1e-9));
}

/* Of JSONL of which every line is skipped, the key is the wrong one. */
static bool check_documents(const job *j) {
  if (!j->skipped && !tsr_token_writer_tokens(j->writer))
    return tsr_diag_error(j->diags, TSR_NOWHERE, "there is no token to write");
  if (!j->skipped || j->documents) return true;
  return tsr_diag_error(
      j->diags, j->first_skipped, "none of the %lld lines has a text under '%s'; the first is here",
      (long long)j->skipped, j->rules.jsonl_key);
}

static bool write_tokens(job *j) {
  const tsr_tokenize_options *o = j->options;
  if (!tsr_token_writer_open(
          j->arena, o->out, o->as, j->rules.is_wide, o->overwrites, &j->writer, j->diags))
    return false;
  if (!check_chars(j) || !run_threads(j) || !check_documents(j) || !tsr_file_maps_check(j->diags)) {
    tsr_token_writer_abandon(j->writer);
    return false;
  }
  int64_t tokens = tsr_token_writer_tokens(j->writer);
  const char *path = tsr_token_writer_path(j->writer);
  if (!finish(j)) return false;
  report(j, tokens, path);
  if (j->skipped)
    tsr_diag_warning(
        j->diags, j->first_skipped,
        "skipped %lld line%s without a text under '%s'; the first is here", (long long)j->skipped,
        j->skipped == 1 ? "" : "s", j->rules.jsonl_key);
  return true;
}

/* One command at a time writes the files of an output, however its name is given: NAME, NAME.bin
 * and NAME.idx are one. */
static bool tokenize(job *j) {
  const char *out = j->options->out;
  size_t length = strlen(out);
  if (length > 4 && (tsr_path_ends(out, ".bin") || tsr_path_ends(out, ".idx"))) length -= 4;
  tsr_folder_lock lock;
  if (!open_inputs(j) || !check_jsonl(j) || !make_rules(j) ||
      !tsr_output_lock_take(
          j->arena, tsr_arena_strndup(j->arena, out, length), out, &lock, j->diags))
    return false;
  bool ok = write_tokens(j);
  tsr_folder_lock_release(&lock);
  return ok;
}

bool tsr_tokenize(tsr_arena *arena, const tsr_tokenize_options *options, tsr_diags *diags) {
  enum { BLOCK_BYTES = 1 << 20 };
  job j = {.arena = arena, .options = options, .diags = diags, .start = now()};
  j.block_bytes = options->block_bytes ? options->block_bytes : BLOCK_BYTES;
  bool ok = tokenize(&j);
  close_inputs(&j);
  return ok;
}
