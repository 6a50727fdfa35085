/* One process among several: joining the job, and agreeing before the first byte is computed. */
#include "app.h"
#include "checkpoint/manifest.h"
#include "comm/agree.h"
#include "config/print.h"
#include "run/pool.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HOST_BYTES = 64 };

static bool is_alone(const app *a) { return a->transport.workers <= 1; }

static double timeout_of(const app *a) {
  return a->config ? a->config->collectives.timeout_s : 60;
}

static bool gather(app *a, const void *mine, int64_t bytes, void *all) {
  char why[TSR_WHY_BYTES] = "";
  return tsr_transport_gather(&a->transport, mine, bytes, all, timeout_of(a), why) ||
         tsr_diag_failure(a->diags, TSR_NOWHERE, "workers cannot agree: %s", why);
}

bool app_join(app *a) {
  if (!tsr_transport_open(a->arena, &a->transport, a->diags)) return false;
  a->muted = a->transport.worker > 0;
  if (a->muted) {
    a->cli.quiet = true;
    tsr_diags_quiet(a->diags);
  }
  return true;
}

void app_leave(app *a) {
  if (a->transport.table) tsr_transport_close(&a->transport);
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

bool app_lay_ranks(app *a) {
  return check_hosts(a) && tsr_hosting_lay(a->arena, a->parallel, &a->transport, &a->hosting, a->diags);
}

typedef struct {
  char host[HOST_BYTES];
  cpu_set_t cores;
} place;

int app_threads(app *a) {
  int cores = tsr_pool_cores(), sharing = 0;
  if (is_alone(a)) return cores;
  place mine = {{0}}, *all = tsr_arena_array(a->arena, place, a->transport.workers);
  gethostname(mine.host, sizeof mine.host - 1);
  if (sched_getaffinity(0, sizeof mine.cores, &mine.cores)) return 1;
  if (!gather(a, &mine, sizeof mine, all)) return 1;
  for (int w = 0; w < a->transport.workers; w++)
    sharing += !strcmp(all[w].host, mine.host) && CPU_EQUAL(&all[w].cores, &mine.cores);
  return cores / sharing > 0 ? cores / sharing : 1;
}

bool app_all_well(app *a, bool ok) {
  if (is_alone(a)) return ok;
  unsigned char mine = ok ? 0 : 1, *all = tsr_arena_alloc(a->arena, (size_t)a->transport.workers);
  if (!gather(a, &mine, 1, all)) return false;
  int first = -1;
  for (int w = 0; first < 0 && w < a->transport.workers; w++)
    if (all[w]) first = w;
  if (first >= 0) a->muted = a->transport.worker != first;
  if (first >= 0 && ok) a->others_failed = true;
  return first < 0;
}

/* ---- the same everywhere ---- */

enum { KINDS = 4 };
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
  tsr_text_add(text, "kernels %s\n", a->kernels->isa);
  for (int s = 0; c->placed && s < c->programs.order->stages; s++)
    tsr_program_print(c->programs.of_stage[s], text);
}

static void add_kind(const app *a, int kind, tsr_text *text) {
  if (kind == 0) add_program(text);
  if (kind == 1) tsr_config_print(a->config, text);
  if (kind == 2) tsr_mesh_print(a->mesh, text);
  if (kind == 3) add_plan(a, text);
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
          "worker %d on %s has another %s than worker 0 on %s: line %d is '%.*s' here and '%.*s' there",
          a->transport.worker, a->transport.table->host(a->transport.state, a->transport.worker), what,
          a->transport.table->host(a->transport.state, 0), line, (int)(n < 120 ? n : 120), m,
          (int)(k < 120 ? k : 120), t);
    m += n + 1;
    t += k + 1;
  }
}

/* Worker 0's text of a kind that some workers have another one of. */
static bool compare_texts(app *a, int kind, const char *what, const char *mine, bool differs) {
  const char *first;
  char why[TSR_WHY_BYTES] = "";
  (void)kind;
  if (!tsr_transport_share_text(a->arena, &a->transport, mine, &first, timeout_of(a), why))
    return tsr_diag_failure(a->diags, TSR_NOWHERE, "workers cannot compare their %s: %s", what, why);
  return !differs || say_difference(a, what, mine, first);
}

bool app_agree(app *a) {
  static const char *const names[KINDS] = {"program", "configuration", "mesh", "plan"};
  if (is_alone(a)) return true;
  hash_text mine[KINDS], *all = tsr_arena_array(a->arena, hash_text, KINDS * a->transport.workers);
  tsr_text texts[KINDS] = {{0}};
  for (int k = 0; k < KINDS; k++) {
    add_kind(a, k, &texts[k]);
    tsr_hash_text(texts[k].data, texts[k].length, mine[k].hash);
  }
  bool ok = gather(a, mine, sizeof mine, all), good = ok;
  for (int k = 0; ok && k < KINDS; k++) {
    bool any = false;
    for (int w = 1; w < a->transport.workers; w++)
      any |= strcmp(all[w * KINDS + k].hash, all[k].hash) != 0;
    if (any) good &= compare_texts(a, k, names[k], texts[k].data, strcmp(mine[k].hash, all[k].hash));
  }
  for (int k = 0; k < KINDS; k++) tsr_text_free(&texts[k]);
  return app_all_well(a, good);
}

/* ---- when others do not answer ---- */

/* The others' own time is over soon, too: they get to say what they wait for. */
void app_lost(void *context, const char *report) {
  enum { GRACE_S = 3 };
  app *a = context;
  fflush(stdout);
  fprintf(stderr, "error: %s\n", report);
  fflush(stderr);
  nanosleep(&(struct timespec){.tv_sec = GRACE_S}, NULL);
  a->transport.table->abort(a->transport.state, 1);
  _exit(1);
}
