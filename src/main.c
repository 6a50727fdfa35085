/* Which command it is. Only main and the commands print diagnostics and decide the exit code. */
#include "app.h"
#include "base/file.h"
#include "config/manual.h"
#include "config/print.h"
#include "config/schema.h"
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t stop, save_now;
static void on_stop(int number) { stop = number; }
static void on_save(int number) { save_now = number; }

/* Where the shipped files are: beside the build folder, or installed. */
static const char *find_share(tsr_arena *arena) {
  const char *named = getenv("TESSERA_SHARE");
  if (named) return named;
  char exe[4096];
  ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
  if (n < 0) return ".";
  exe[n] = 0;
  const char *folder = tsr_path_folder(arena, exe);
  for (int i = 0; i < 2; i++) {
    char path[4200];
    snprintf(path, sizeof path, i ? "%s/../share/tessera-train" : "%s/..", folder);
    const char *probe = tsr_arena_printf(arena, "%s/configs/graphs", path);
    char real[PATH_MAX];
    if (tsr_file_exists(probe) && realpath(path, real)) return tsr_arena_strdup(arena, real);
  }
  return ".";
}

/* Before anything is to be kept: nothing but a word and the end. */
static void on_early(int number) {
  static const char message[] = "tessera-train: ended by a signal\n";
  if (write(STDERR_FILENO, message, sizeof message - 1) < 0) { /* nobody to say it to */
  }
  _exit(128 + number);
}

/* A standard stream that is closed would be the next file's number: it is taken, and fails. */
static void take_closed_streams(void) {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++)
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* A terminal that is closed ends the command, but for one that nohup has started. */
static void catch_ends(void (*handler)(int)) {
  signal(SIGINT, handler);
  signal(SIGTERM, handler);
  if (signal(SIGHUP, handler) == SIG_IGN) signal(SIGHUP, SIG_IGN);
}

/* A limit of file sizes is an error of what is written, which says where. */
static void catch_early_signals(void) {
  signal(SIGUSR1, SIG_IGN); /* there is nothing to save yet */
  signal(SIGXFSZ, SIG_IGN);
  catch_ends(on_early);
}

void app_catch_signals(void) {
  catch_ends(on_stop);
  signal(SIGUSR1, on_save);
  signal(SIGPIPE, SIG_IGN);
}

static int print_config(app *a) {
  tsr_text text = {0};
  bool ok = app_load_config(a);
  if (ok) tsr_config_print(a->config, &text);
  app_print(&text);
  return app_finish(a, ok);
}

static int run(app *a) {
  static int (*const commands[TSR_COMMANDS])(app *) = {
      [TSR_COMMAND_TRAIN] = app_run_train,       [TSR_COMMAND_CHECK] = app_run_check,
      [TSR_COMMAND_INSPECT] = app_run_inspect,   [TSR_COMMAND_TRACE] = app_run_trace,
      [TSR_COMMAND_PROFILE] = app_run_train,     [TSR_COMMAND_PLAN] = app_run_plan,
      [TSR_COMMAND_EVALUATE] = app_run_evaluate, [TSR_COMMAND_GENERATE] = app_run_generate,
      [TSR_COMMAND_IMPORT] = app_run_import,     [TSR_COMMAND_EXPORT] = app_run_export,
      [TSR_COMMAND_TOKENIZE] = app_run_tokenize, [TSR_COMMAND_CHECKPOINT] = app_run_checkpoint,
      [TSR_COMMAND_KERNELS] = app_run_kernels,   [TSR_COMMAND_DOCTOR] = app_run_doctor};
  tsr_text text = {0};
  if (a->cli.help) return tsr_cli_print_help(&a->cli), app_finish(a, true);
  if (a->cli.version) return printf("tessera-train %s\n", TSR_VERSION), app_finish(a, true);
  if (a->cli.print_schema) return tsr_config_schema(&text), app_print(&text), app_finish(a, true);
  if (a->cli.print_manual) return tsr_config_manual(&text), app_print(&text), app_finish(a, true);
  if (a->cli.print_config) return print_config(a);
  bool ok = app_check_level(a) && (app_is_joint(a) || app_check_alone(a));
  return ok ? commands[a->cli.command](a) : app_finish(a, false);
}

int main(int argc, char **argv) {
  app a = {.arena = tsr_arena_new(), .stop = &stop, .save_now = &save_now};
  catch_early_signals();
  a.diags = tsr_diags_new(a.arena);
  a.share = find_share(a.arena);
  take_closed_streams();
  bool ok = tsr_cli_parse(a.arena, argc, argv, &a.cli, a.diags);
  if (app_writes_files(&a)) signal(SIGPIPE, SIG_IGN); /* a failure of what is written */
  if (a.cli.quiet) tsr_diags_quiet(a.diags);
  if (!ok && app_is_joint(&a) && app_join(&a)) app_all_well(&a, false); /* others may wait */
  int code = ok ? run(&a) : app_finish(&a, false);
  code = app_leave(&a, code);
  tsr_arena_free(a.arena);
  return code;
}
