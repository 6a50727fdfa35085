// SPDX-License-Identifier: Apache-2.0
#include "report/chrome_trace.h"
#include "base/utf8.h"
#include "report/comm_trace.h"
#include "schedule/fuse.h"
#include <string.h>

static const char first_line[] =
    "{\"otherData\":{\"program\":\"tessera-train\"},\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
enum { TRACKS = 4, FLUSH_BYTES = 1 << 20 };

typedef struct {
  const tsr_record *record;
  int64_t *next; /* per rank: seq */
  tsr_new_file *file;
  tsr_text text; /* not written yet */
  bool any;      /* event before this one */
  bool failed;
  tsr_diags *diags;
} writing;

/* As a JSON string; what is no UTF-8 becomes U+FFFD. */
static void add_string(tsr_text *text, const char *string) {
  size_t length = strlen(string);
  tsr_text_add(text, "\"");
  for (size_t at = 0; at < length;) {
    uint32_t code = 0;
    int bytes = tsr_utf8_next(string + at, length - at, &code);
    if (!bytes) tsr_text_add(text, "\xef\xbf\xbd");
    else if (code < 0x20) tsr_text_add(text, "\\u%04x", code);
    else if (code == '"' || code == '\\') tsr_text_add(text, "\\%c", (char)code);
    else tsr_text_add_bytes(text, string + at, (size_t)bytes);
    at += bytes ? (size_t)bytes : 1;
  }
  tsr_text_add(text, "\"");
}

static void flush(writing *w) {
  if (w->text.length && !w->failed)
    w->failed = !tsr_new_file_write(w->file, w->text.data, w->text.length, w->diags);
  w->text.length = 0;
}

static void begin_event(writing *w) {
  if (w->text.length > FLUSH_BYTES) flush(w);
  tsr_text_add(&w->text, w->any ? ",\n" : "\n");
  w->any = true;
}

/* ---- names of ranks and tracks ---- */

static void add_name(writing *w, const char *what, int pid, int tid, const char *name) {
  begin_event(w);
  tsr_text_add(
      &w->text, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", what,
      pid, tid);
  add_string(&w->text, name);
  tsr_text_add(&w->text, "}}");
}

static void name_rank(writing *w, int rank) {
  static const char *const tracks[TRACKS] = {
      "compute", "communication", "communication in the background", "waiting"};
  const tsr_parallel *p = w->record->parallel;
  tsr_text name = {0};
  tsr_text_add(&name, "rank %d", rank);
  for (int a = 0; a < TSR_AXES; a++)
    if (p->size[a] > 1)
      tsr_text_add(&name, " %s %d", tsr_axis_name(a), tsr_parallel_coord(p, rank, a));
  add_name(w, "process_name", rank, 0, name.data);
  for (int t = 0; t < TRACKS; t++) add_name(w, "thread_name", rank, t, tracks[t]);
  tsr_text_free(&name);
}

/* ---- events ---- */

static void add_span(writing *w, const char *name, const char *kind, int64_t begin, int64_t end) {
  begin_event(w);
  tsr_text_add(&w->text, "{\"ph\":\"X\",\"name\":");
  add_string(&w->text, name);
  tsr_text_add(
      &w->text, ",\"cat\":\"%s\",\"ts\":%lld.%03d,\"dur\":%lld.%03d", kind,
      (long long)(begin / 1000), (int)(begin % 1000), (long long)((end - begin) / 1000),
      (int)((end - begin) % 1000));
}

static void add_communication(writing *w, const tsr_program *p, const tsr_task *t, int rank) {
  bool between = t->op == TSR_OP_SEND || t->op == TSR_OP_RECEIVE;
  int64_t bytes = t->inputs_count ? tsr_tensor_bytes(&t->inputs[0]) : 0;
  if (between) tsr_text_add(&w->text, ",\"peer\":%d", tsr_peer_of(w->record->parallel, p, t, rank));
  else tsr_text_add(&w->text, ",\"axis\":\"%s\"", tsr_axis_name(t->axis));
  tsr_text_add(
      &w->text, ",\"bytes\":%lld,\"seq\":%lld", (long long)bytes, (long long)w->next[rank]++);
}

static void add_task(writing *w, const tsr_event *e) {
  const tsr_parallel *parallel = w->record->parallel;
  const tsr_program *p =
      w->record->programs->of_stage[tsr_parallel_coord(parallel, e->rank, TSR_PP)];
  const tsr_task *t = e->task < 0 ? NULL : &p->tasks[e->task];
  const tsr_node *n = t ? &p->graph->nodes[t->node] : NULL;
  int track = e->kind == TSR_EVENT_WAIT            ? 3
              : e->kind != TSR_EVENT_COMMUNICATION ? 0
              : e->background                      ? 2
                                                   : 1;
  add_span(w, n ? n->name : "inputs", tsr_event_kind_name(e->kind), e->begin, e->end);
  tsr_text_add(
      &w->text, ",\"pid\":%d,\"tid\":%d,\"args\":{\"step\":%d,\"microbatch\":%d", e->rank, track,
      e->step, e->microbatch);
  if (t)
    tsr_text_add(
        &w->text, ",\"op\":\"%s\",\"section\":\"%s\"", tsr_task_kind_name(t),
        tsr_section_name(t->section));
  if (e->kind == TSR_EVENT_COMMUNICATION) add_communication(w, p, t, e->rank);
  if (n && n->location.file && n->location.line) {
    tsr_text location = {0};
    tsr_text_add(&location, "%s:%d", n->location.file, n->location.line);
    tsr_text_add(&w->text, ",\"place\":");
    add_string(&w->text, location.data);
    tsr_text_free(&location);
  }
  tsr_text_add(&w->text, "}}");
}

static void add_all(writing *w) {
  const tsr_record *r = w->record;
  int ranks = r->parallel->ranks;
  tsr_text_add(&w->text, "%s", first_line);
  for (int i = 0; i < ranks; i++) name_rank(w, i);
  add_name(w, "process_name", ranks, 0, "steps");
  for (int i = 0; i < r->steps_count; i++) {
    char name[32];
    snprintf(name, sizeof name, "step %d", i);
    add_span(w, name, "step", r->steps[i].begin, r->steps[i].end);
    tsr_text_add(&w->text, ",\"pid\":%d,\"tid\":0,\"args\":{\"step\":%d}}", ranks, i);
  }
  for (int64_t i = 0; i < r->events_count && !w->failed; i++) add_task(w, &r->events[i]);
  tsr_text_add(&w->text, "\n]}\n");
  flush(w);
}

bool tsr_chrome_trace_open(const char *path, tsr_new_file *ret, tsr_diags *diags) {
  return tsr_file_check_replaced(path, first_line, "trace of tessera-train", diags) &&
         tsr_new_file_open(path, ret, diags);
}

bool tsr_chrome_trace_write(tsr_new_file *file, const tsr_record *record, tsr_diags *diags) {
  writing w = {.record = record, .file = file, .diags = diags};
  tsr_arena *scratch = tsr_arena_new();
  w.next = tsr_arena_array(scratch, int64_t, record->parallel->ranks);
  add_all(&w);
  tsr_text_free(&w.text);
  tsr_arena_free(scratch);
  return !w.failed && tsr_new_file_commit(file, diags);
}
