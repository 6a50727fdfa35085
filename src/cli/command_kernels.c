// SPDX-License-Identifier: Apache-2.0
/* The command `kernels`. */
#include "cli/console.h"
#include "cli/kernel_bench/bench.h"
#include "device/cpu/thread_pool.h"

/* Without a file, --set alone may select the level. */
static bool load_config(app *a, setup *s) {
  if (a->options.config) return setup_load_config(a, s);
  const tsr_options *c = &a->options;
  return !c->sets_count ||
         tsr_config_parse(
             a->arena, "--set", "", 0, c->sets, c->sets_count, false, &s->config, a->diags);
}

static void print_now(tsr_text *text) {
  console_print(text);
  fflush(stdout);
}

/* A row as soon as it is measured. */
static void measure(const app *a, const tsr_kernels *kernels, tsr_bench *bench, int threads) {
  int count = tsr_bench_rows_count(bench);
  tsr_bench_row *rows = tsr_arena_array(a->arena, tsr_bench_row, count);
  tsr_text text = {0};
  tsr_bench_print_head(kernels, threads, &text);
  print_now(&text);
  for (int i = 0; i < count; i++) {
    tsr_bench_measure(bench, i, &rows[i]);
    tsr_bench_print_row(&rows[i], &text);
    print_now(&text);
  }
  tsr_bench_print_end(rows, count, &text);
  print_now(&text);
}

static bool run_bench(app *a, const tsr_kernels *kernels) {
  int threads = a->options.threads ? (int)a->options.threads : 1, cores = tsr_pool_cores();
  tsr_bench *bench;
  if (threads > cores) {
    tsr_diag_error(
        a->diags, TSR_NOWHERE, "--threads %d: this process may use %d core%s", threads, cores,
        cores > 1 ? "s" : "");
    return false;
  }
  bool ok = tsr_bench_open(a->arena, kernels, threads, a->options.filter, &bench, a->diags);
  if (ok) measure(a, kernels, bench, threads);
  tsr_bench_close(bench);
  return ok;
}

int app_run_kernels(app *a) {
  tsr_text text = {0};
  setup s = {0};
  bool ok = load_config(a, &s) && setup_choose_cpu(a, &s);
  if (ok && a->options.bench) ok = run_bench(a, s.compute.kernels);
  else if (ok) tsr_bench_list(s.compute.kernels, &text);
  console_print(&text);
  return console_finish(a, ok);
}
