/* The command `kernels`. */
#include "app.h"
#include "bench/bench.h"
#include "run/pool.h"

/* Without a file, --set alone may say which level. */
static bool load_config(app *a) {
  if (a->cli.config) return app_load_config(a);
  const tsr_cli *c = &a->cli;
  return !c->sets_count ||
         tsr_config_parse(
             a->arena, "--set", "", 0, c->sets, c->sets_count, false, &a->config, a->diags);
}

static void print_now(tsr_text *text) {
  app_print(text);
  fflush(stdout);
}

/* A row as soon as it is there. */
static void measure(app *a, tsr_bench *bench, int threads) {
  int count = tsr_bench_rows_count(bench);
  tsr_bench_row *rows = tsr_arena_array(a->arena, tsr_bench_row, count);
  tsr_text text = {0};
  tsr_bench_print_head(a->kernels, threads, &text);
  print_now(&text);
  for (int i = 0; i < count; i++) {
    tsr_bench_measure(bench, i, &rows[i]);
    tsr_bench_print_row(&rows[i], &text);
    print_now(&text);
  }
  tsr_bench_print_end(rows, count, &text);
  print_now(&text);
}

static bool run_bench(app *a) {
  int threads = a->cli.threads ? (int)a->cli.threads : 1, cores = tsr_pool_cores();
  tsr_bench *bench;
  if (threads > cores) {
    tsr_diag_error(
        a->diags, TSR_NOWHERE, "--threads %d: this process may use %d core%s", threads, cores,
        cores > 1 ? "s" : "");
    return false;
  }
  bool ok = tsr_bench_open(a->arena, a->kernels, threads, a->cli.filter, &bench, a->diags);
  if (ok) measure(a, bench, threads);
  tsr_bench_close(bench);
  return ok;
}

int app_run_kernels(app *a) {
  tsr_text text = {0};
  bool ok = load_config(a) && app_choose_device(a);
  if (ok && a->cli.bench) ok = run_bench(a);
  else if (ok) tsr_bench_list(a->kernels, &text);
  app_print(&text);
  return app_finish(a, ok);
}
