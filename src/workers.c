/* One process among several: joining the job, and agreeing before the first byte is computed. */
#include "app.h"
#include "base/folder_lock.h"
#include "base/memory.h"
#include "checkpoint/manifest.h"
#include "comm/agree.h"
#include "comm/peers.h"
#include "config/print.h"
#include "run/pool.h"
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
  GRACE_S = 2, /* for the others to say what they wait for, or that they fail, too */
  ABORT_S = 3,
  CLOSE_S = 10,                          /* for MPI to end when all workers have */
  PART_TAG = TSR_TRANSPORT_TAGS / 2 - 2, /* programs and reports leave it out */
  JOIN_S = 300, /* for all to begin; TESSERA_JOIN_TIMEOUT_S says otherwise */
};

static bool is_alone(const app *a) { return a->transport.workers <= 1; }

static double timeout_of(const app *a) { return a->config ? a->config->collectives.timeout_s : 60; }

/* ---- deadlines of what blocks: joining and leaving ---- */

static char late_text[256];

static void on_late(int number) {
  (void)number;
  if (write(STDERR_FILENO, late_text, strlen(late_text)) < 0) _exit(1);
  _exit(1);
}

void app_set_deadline(double seconds, const char *what) {
  const char *ranks[] = {getenv("OMPI_COMM_WORLD_RANK"), getenv("PMI_RANK"), getenv("PMIX_RANK")};
  const char *rank = ranks[0] ? ranks[0] : ranks[1] ? ranks[1] : ranks[2] ? ranks[2] : "?";
  snprintf(
      late_text, sizeof late_text,
      "error: worker %.16s: the job has not %s in %.0f s: another worker is stopped or dead, or "
      "its "
      "link is cut\n",
      rank, what, ceil(seconds));
  signal(SIGALRM, on_late);
  alarm((unsigned)ceil(seconds));
}

void app_end_deadline(void) {
  alarm(0);
  signal(SIGALRM, SIG_DFL);
}

/* The configuration is not read yet. */
static double join_timeout(void) {
  const char *said = getenv("TESSERA_JOIN_TIMEOUT_S");
  double seconds = said ? strtod(said, NULL) : 0;
  return seconds > 0 && seconds < 1e6 ? seconds : JOIN_S;
}

static int late_code;
static void on_late_end(int number) {
  (void)number;
  _exit(late_code);
}

/* MPI may wait for its launcher, whose link may be cut, too. The launcher ends with this code all
 * the same, and not with the signal's number. */
static void end_job(app *a, int code) {
  late_code = code;
  signal(SIGALRM, on_late_end);
  alarm(ABORT_S);
  a->transport.table->abort(a->transport.state, code);
  _exit(code);
}

static void rest(int seconds) { nanosleep(&(struct timespec){.tv_sec = seconds}, NULL); }

/* Those that do not answer cannot be left in an orderly way, so that each worker that notices it
 * speaks for itself, and ends the job. */
static bool give_up(app *a, const char *what, const char *why) {
  a->muted = false;
  a->others_silent = true;
  return tsr_diag_failure(
      a->diags, TSR_NOWHERE, "worker %d on %s: %s: %s", a->transport.worker,
      a->transport.table->host(a->transport.state, a->transport.worker), what, why);
}

bool app_gather(app *a, const void *mine, int64_t bytes, void *all) {
  char why[TSR_WHY_BYTES] = "";
  return tsr_transport_gather(&a->transport, mine, bytes, all, timeout_of(a), why) ||
         give_up(a, "workers cannot agree", why);
}

/* Of the workers of a host, of which none can ask the others, one speaks, and the others wait with
 * their end until it has: their launcher ends all when one ends. */
static void speak_on_first(app *a) {
  const char *names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"};
  const char *number = NULL;
  for (int i = 0; i < 3 && !number; i++) number = getenv(names[i]);
  a->muted = number && atoi(number) > 0;
  if (a->muted) rest(GRACE_S);
}

bool app_check_alone(app *a) {
  bool profiles = a->cli.command == TSR_COMMAND_PROFILE; /* events are recorded where they happen */
  bool writes = profiles || a->cli.out || a->cli.svg || a->cli.calibration;
  int workers = writes ? tsr_transport_launched(a->arena) : 1;
  if (workers == 1) return true;
  tsr_diag_error(
      a->diags, TSR_NOWHERE, "%s is for one process, and %d workers were started",
      tsr_cli_command_name(a->cli.command), workers);
  tsr_diag_hint(a->diags, "start it without the launcher");
  speak_on_first(a);
  return false;
}

bool app_is_joint(const app *a) {
  switch (a->cli.command) {
  case TSR_COMMAND_TRAIN:
  case TSR_COMMAND_EVALUATE:
  case TSR_COMMAND_GENERATE:
    return true;
  default:
    return false;
  }
}

/* Says it without allocating, and ends the job: others would wait for this worker. What the run has
 * saved stays. */
static void end_without_memory(void *context, size_t bytes) {
  app *a = context;
  const tsr_transport *t = &a->transport;
  char worker[64] = "";
  if (t->table) snprintf(worker, sizeof worker, "worker %d: ", t->worker);
  fprintf(stderr, "error: %sout of memory: %zu bytes\n", worker, bytes);
  if (t->table) end_job(a, 1);
  exit(1);
}

bool app_join(app *a) {
  tsr_memory_on_lack(end_without_memory, a);
  app_set_deadline(join_timeout(), "begun");
  bool opened = tsr_transport_open(a->arena, &a->transport, a->diags);
  app_end_deadline();
  if (!opened) return speak_on_first(a), false;
  char why[TSR_WHY_BYTES] = "";
  a->muted = a->transport.worker > 0;
  if (a->muted) {
    a->cli.quiet = true;
    tsr_diags_quiet(a->diags);
  }
  return is_alone(a) || tsr_peers_meet(a->arena, &a->transport, join_timeout(), why) ||
         give_up(a, "workers cannot meet", why);
}

/* ---- the end ---- */

/* Asks for those of `count` messages that are still under way; how many are left. */
static int count_pending(const tsr_transport *t, tsr_message *messages, bool *done, int count) {
  char why[TSR_WHY_BYTES] = "";
  int pending = 0;
  for (int i = 0; i < count; i++) {
    if (!done[i]) done[i] = t->table->test(t->state, &messages[i], why) != TSR_MESSAGE_PENDING;
    pending += !done[i];
  }
  return pending;
}

/* Every worker tells every other one that it is at its end, and with which code; 0: well. Waits for
 * `seconds` at most; whether all have. The first one that is not well: -1 where all are. */
static bool hear_all(app *a, int code, double seconds, int *ret_first) {
  const tsr_transport *t = &a->transport;
  unsigned char *theirs = tsr_arena_alloc(a->arena, (size_t)t->workers), *mine = &theirs[t->worker];
  tsr_message *messages = tsr_arena_array(a->arena, tsr_message, 2 * t->workers);
  bool *done = tsr_arena_array(a->arena, bool, 2 * t->workers);
  char why[TSR_WHY_BYTES] = "";
  memset(theirs, 0, (size_t)t->workers);
  *mine = (unsigned char)code;
  *ret_first = code ? t->worker : -1;
  for (int w = 0; w < t->workers; w++) {
    tsr_message *in = &messages[2 * w], *out = in + 1;
    done[2 * w] = done[2 * w + 1] = w == t->worker;
    if (w != t->worker && (!t->table->receive(t->state, w, PART_TAG, &theirs[w], 1, in, why) ||
                           !t->table->send(t->state, w, PART_TAG, mine, 1, out, why)))
      return false;
  }
  tsr_patience patience = {0};
  int pending;
  while ((pending = count_pending(t, messages, done, 2 * t->workers)) > 0)
    if (tsr_patience_round(&patience) > seconds) break;
  for (int pass = 0; pass < 2; pass++) /* a mistake of the user's is nearer to the cause */
    for (int w = t->workers; w-- > 0;)
      if (done[2 * w] && theirs[w] && (!pass || theirs[w] == 2)) *ret_first = w;
  if (*ret_first >= 0) a->job_code = theirs[*ret_first];
  return !pending;
}

/* Of those that fail alike one speaks. The others, where there are any, may wait for this worker:
 * so the job ends, and not only when their time is over. */
void app_hear_failures(app *a, int code) {
  int first = a->transport.worker;
  if (is_alone(a) || a->others_silent || a->has_agreed || a->has_heard) return;
  a->has_heard = true;
  a->must_end = !hear_all(a, code, GRACE_S, &first);
  a->muted = first != a->transport.worker;
}

/* What is left to do is MPI's, and nobody's loss when it hangs. */
static void close_in_time(app *a, int code) {
  late_code = code;
  signal(SIGALRM, on_late_end);
  alarm(CLOSE_S);
  tsr_transport_close(&a->transport);
  app_end_deadline();
}

int app_leave(app *a, int code) {
  int first = -1;
  if (a->others_silent) rest(GRACE_S);
  else if (a->must_end) rest(1); /* what was said comes before what the launcher says */
  if (a->others_silent || a->must_end) end_job(a, code);
  if (!a->transport.table) return code;
  bool well = !code || code > 128 || a->ends_last;
  app_set_deadline(timeout_of(a), "ended");
  if (!is_alone(a) && !a->has_heard) hear_all(a, well ? 0 : code, INFINITY, &first);
  app_end_deadline();
  close_in_time(a, code);
  if (a->ends_last) rest(1);
  return first >= 0 && code <= 128 && !a->ends_last ? a->job_code : code;
}

/* A descriptor says how many hosts there are; one process stands for all of them. */
static bool check_hosts(app *a) {
  if (is_alone(a) || !a->mesh->file) return true;
  tsr_text names = {0};
  int64_t hosts = 0;
  for (int w = 0; w < a->transport.workers; w++) {
    const char *host = a->transport.table->host(a->transport.state, w);
    bool seen = false;
    for (int v = 0; v < w && !seen; v++)
      seen = !strcmp(host, a->transport.table->host(a->transport.state, v));
    if (!seen) tsr_text_add(&names, "%s%s", hosts++ ? ", " : "", host);
  }
  bool ok = hosts == a->mesh->hosts;
  if (!ok)
    tsr_diag_error(
        a->diags, a->mesh->shape.place,
        "the descriptor has %lld host%s, and the %d workers of this job are on %lld: %s",
        (long long)a->mesh->hosts, a->mesh->hosts == 1 ? "" : "s", a->transport.workers,
        (long long)hosts, names.data);
  tsr_text_free(&names);
  return ok;
}

/* Workers that the configuration asks for, where they train. */
static bool refuse_count(app *a, const char *key, int64_t wanted, const char *fewer) {
  int workers = a->transport.workers;
  return tsr_diag_error(
      a->diags, tsr_config_place(a->config, key), "%d worker%s started, %s than the %lld of %s",
      workers, workers == 1 ? " was" : "s were", fewer, (long long)wanted, key);
}

static bool check_workers(app *a) {
  const tsr_config_elastic *e = &a->config->elastic;
  int64_t workers = a->transport.workers;
  if (a->cli.command != TSR_COMMAND_TRAIN) return true;
  if (workers < e->min_workers)
    return refuse_count(a, "elastic.min_workers", e->min_workers, "fewer");
  if (e->max_workers && workers > e->max_workers)
    return refuse_count(a, "elastic.max_workers", e->max_workers, "more");
  return true;
}

bool app_lay_ranks(app *a) {
  return check_workers(a) && check_hosts(a) &&
         tsr_hosting_lay(a->arena, a->parallel, &a->transport, &a->hosting, a->diags);
}

typedef struct {
  char host[TSR_HOST_BYTES];
  cpu_set_t cores;
} place;

int app_threads(app *a) {
  int cores = tsr_pool_cores(), sharing = 0;
  if (is_alone(a)) return cores;
  place mine = {{0}}, *all = tsr_arena_array(a->arena, place, a->transport.workers);
  gethostname(mine.host, sizeof mine.host - 1);
  if (sched_getaffinity(0, sizeof mine.cores, &mine.cores)) return 1;
  if (!app_gather(a, &mine, sizeof mine, all)) return 1;
  for (int w = 0; w < a->transport.workers; w++)
    sharing += !strcmp(all[w].host, mine.host) && CPU_EQUAL(&all[w].cores, &mine.cores);
  return cores / sharing > 0 ? cores / sharing : 1;
}

bool app_all_well(app *a, bool ok) {
  if (is_alone(a)) return ok;
  if (a->has_agreed) return false;
  /* Who only stops because another one has failed does not speak for all. */
  int code = tsr_diags_exit_code(a->diags);
  unsigned char mine = ok || a->others_failed ? 0 : code ? (unsigned char)code : 1;
  unsigned char *all = tsr_arena_alloc(a->arena, (size_t)a->transport.workers);
  if (!app_gather(a, &mine, 1, all)) return false;
  int first = -1;
  for (int w = 0; first < 0 && w < a->transport.workers; w++)
    if (all[w]) first = w;
  if (first >= 0) a->muted = a->transport.worker != first;
  if (first >= 0) a->job_code = all[first];
  a->has_agreed = first >= 0;
  if (first >= 0 && ok) a->others_failed = true;
  return first < 0;
}

/* ---- the same everywhere ---- */

enum { KINDS = 5 };
typedef struct {
  char hash[TSR_HASH_TEXT];
} hash_text;

/* The file that runs: another build computes other bits. */
static void add_program(tsr_text *text) {
  tsr_text_add(text, "tessera-train %s\n", TSR_VERSION);
  FILE *f = fopen("/proc/self/exe", "rb");
  char bytes[65536];
  tsr_arena *arena = tsr_arena_new();
  tsr_hasher *hasher = tsr_hasher_new(arena);
  tsr_hasher_begin(hasher);
  for (size_t n; f && (n = fread(bytes, 1, sizeof bytes, f)) > 0;) tsr_hasher_add(hasher, bytes, n);
  if (f) fclose(f);
  char hash[TSR_HASH_TEXT];
  tsr_hasher_end(hasher, hash);
  tsr_text_add(text, "build %s\n", hash);
  tsr_arena_free(arena);
}

static void add_plan(const app *a, tsr_text *text) {
  const tsr_compiled *c = a->training.placed     ? &a->training
                          : a->evaluation.placed ? &a->evaluation
                                                 : &a->generation;
  tsr_text_add(text, "kernels %s\n", a->device ? a->device->arch : a->kernels->isa);
  for (int s = 0; c->placed && s < c->programs.order->stages; s++)
    tsr_program_print(c->programs.of_stage[s], text);
}

/* What the command's options say of where a run begins and what it leaves. */
static void add_options(const tsr_cli *cli, tsr_text *text) {
  const char *const words[][2] = {
      {"--out", cli->out},
      {"--metrics", cli->metrics},
      {"--resume", cli->resume},
      {"--time-limit", cli->time_limit_text},
      {"--overwrite", cli->overwrite ? "" : NULL}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (words[i][1]) tsr_text_add(text, "%s %s\n", words[i][0], words[i][1]);
}

/* Where a value came from does not matter, only what it is. */
static void add_config(const app *a, tsr_text *text) {
  tsr_text printed = {0};
  tsr_config_print(a->config, &printed);
  for (char *line = printed.data; line && *line;) {
    size_t length = strcspn(line, "\n");
    char *end = line + length, *origin = end;
    while (origin > line && strncmp(origin, "  # ", 4)) origin--;
    if (origin > line) length = (size_t)(origin - line);
    tsr_text_add(text, "%.*s\n", (int)length, line);
    line = *end ? end + 1 : end;
  }
  tsr_text_free(&printed);
  add_options(&a->cli, text);
}

static void add_kind(const app *a, int kind, tsr_text *text) {
  if (kind == 0) add_program(text);
  if (kind == 1) add_config(a, text);
  if (kind == 2) tsr_mesh_print(a->mesh, text);
  if (kind == 3) add_plan(a, text);
  if (kind == 4) tsr_text_add(text, "%s\n", a->input);
}

/* The first line of `mine` that is another one in `theirs`. */
static bool say_difference(app *a, const char *what, const char *mine, const char *theirs) {
  const char *m = mine, *t = theirs;
  int line = 1;
  for (;; line++) {
    size_t n = strcspn(m, "\n"), k = strcspn(t, "\n");
    if (n != k || memcmp(m, t, n) || !m[n] || !t[k])
      return tsr_diag_error(
          a->diags, TSR_NOWHERE,
          "worker %d on %s has another %s than worker 0 on %s: line %d is '%.*s' here and '%.*s' "
          "there",
          a->transport.worker, a->transport.table->host(a->transport.state, a->transport.worker),
          what, a->transport.table->host(a->transport.state, 0), line, (int)(n < 120 ? n : 120), m,
          (int)(k < 120 ? k : 120), t);
    m += n + 1;
    t += k + 1;
  }
}

/* Worker 0's text of a kind that some workers have another one of. */
static bool compare_texts(app *a, const char *what, const char *mine, bool differs) {
  const char *first;
  char why[TSR_WHY_BYTES] = "";
  if (!tsr_transport_share_text(a->arena, &a->transport, mine, &first, timeout_of(a), why))
    return give_up(a, tsr_arena_printf(a->arena, "workers cannot compare their %s", what), why);
  return !differs || say_difference(a, what, mine, first);
}

/* Policy fast: the transport adds by itself, in groups of workers, where devices that are linked do
 * not. Forming them waits inside the transport. */
static bool form_groups(app *a) {
  char why[TSR_WHY_BYTES] = "";
  if (a->config->numerics.policy != TSR_NUMERICS_FAST || a->hosting.links) return true;
  app_set_deadline(timeout_of(a), "formed its groups");
  bool ok = tsr_hosting_form(a->arena, a->parallel, &a->hosting, why);
  app_end_deadline();
  return ok || give_up(a, "workers cannot form groups", why);
}

static bool share_owner(app *a) {
  char why[TSR_WHY_BYTES] = "", mine[TSR_FOLDER_OWNER_BYTES];
  tsr_folder_lock_owner(mine);
  return tsr_transport_share_text(
             a->arena, &a->transport, tsr_arena_strdup(a->arena, mine), &a->first_owner,
             timeout_of(a), why) ||
         give_up(a, "workers cannot share a folder", why);
}

bool app_agree(app *a) {
  static const char *const names[KINDS] = {
      "program", "configuration", "mesh", "plan", "hash of its data or prompts"};
  if (is_alone(a)) return true;
  hash_text mine[KINDS], *all = tsr_arena_array(a->arena, hash_text, KINDS * a->transport.workers);
  tsr_text texts[KINDS] = {{0}};
  for (int k = 0; k < KINDS; k++) {
    add_kind(a, k, &texts[k]);
    tsr_hash_text(texts[k].data, texts[k].length, mine[k].hash);
  }
  bool ok = app_gather(a, mine, sizeof mine, all), good = ok;
  for (int k = 0; ok && k < KINDS; k++) {
    bool any = false;
    for (int w = 1; w < a->transport.workers; w++)
      any |= strcmp(all[w * KINDS + k].hash, all[k].hash) != 0;
    if (any) good &= compare_texts(a, names[k], texts[k].data, strcmp(mine[k].hash, all[k].hash));
  }
  for (int k = 0; k < KINDS; k++) tsr_text_free(&texts[k]);
  return app_all_well(a, good) && share_owner(a) && app_link_devices(a) && form_groups(a);
}

/* ---- when others do not answer ---- */

/* In one piece, so that reports of several workers do not mix; then the others get to say theirs.
 */
void app_lost(void *context, const char *report) {
  app *a = context;
  tsr_text text = {0};
  fflush(stdout);
  tsr_text_add(&text, "error: %s\n", report);
  for (size_t at = 0; at < text.length;) {
    ssize_t n = write(STDERR_FILENO, text.data + at, text.length - at);
    if (n <= 0) break;
    at += (size_t)n;
  }
  if (is_alone(a)) _exit(1);
  rest(GRACE_S);
  end_job(a, 1);
}
