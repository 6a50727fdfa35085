// SPDX-License-Identifier: Apache-2.0
/* Runs the program on every folder of cases and compares what it says, byte for byte.
 *
 *   run_golden PROGRAM CASES [--accept] [PREFIX…]
 *
 * A case is a folder CASES/NAME (names that start with '_' are other things: files that cases
 * share, and _faults, the cases of the program with faults) with
 *   args     the command line, one line, words as in a shell ('…', "…" and \ quote)
 *   env      optional: lines NAME=value
 *   stdout   what must be printed there; without the file: nothing
 *   stderr   the same
 *   exit     optional: the exit code; 0 without the file
 * A case that prints nothing at all has an empty stdout: without both files it is not finished.
 * The program runs in the case's folder with an environment of its own. In args and env, @TMP@
 * stands for a fresh folder that is removed afterwards and @ROOT@ for the source root; in what the
 * program prints, these paths are turned back, and the numbers of varying_units become '#'. With
 * --accept the files become what was printed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* What no configuration pins and every run measures anew: the number in front of each of these. All
 * else that a case prints must be the same on every machine (numerics.isa and numerics.threads). */
static const char *const varying_units[] = {" tokens/s"};

enum { WORDS_MAX = 64, SECONDS_MAX = 100, LINES_SHOWN_MAX = 40 };

typedef struct {
  const char *name;
  char folder[4096], scratch[64], root[4096];
  char *argv[WORDS_MAX + 2];
  char *env[WORDS_MAX + 16];
  int exit_code; /* 128 + n when signal n ended it */
  char *out, *err;
} golden_case;

static void *must(void *pointer) {
  if (!pointer) perror("run_golden"), exit(2);
  return pointer;
}

static char *printf_new(const char *format, const char *a, const char *b) {
  size_t size = strlen(format) + strlen(a) + strlen(b) + 1;
  char *text = must(malloc(size));
  snprintf(text, size, format, a, b);
  return text;
}

/* The whole stream or file, NUL-terminated; NULL when there is no such file. */
static char *stream_read(FILE *stream) {
  size_t length = 0, capacity = 4096, got;
  char *text = must(malloc(capacity));
  rewind(stream);
  while ((got = fread(text + length, 1, capacity - length - 1, stream)) > 0) {
    length += got;
    if (length + 1 == capacity) text = must(realloc(text, capacity *= 2));
  }
  text[length] = 0;
  return text;
}

static char *case_read(const golden_case *c, const char *file) {
  char *path = printf_new("%s/%s", c->folder, file);
  FILE *stream = fopen(path, "rb");
  char *text = stream ? stream_read(stream) : NULL;
  if (stream) fclose(stream);
  free(path);
  return text;
}

static void case_write(const golden_case *c, const char *file, const char *text) {
  char *path = printf_new("%s/%s", c->folder, file);
  FILE *stream = must(fopen(path, "wb"));
  fputs(text, stream);
  if (fclose(stream)) perror(path), exit(2);
  free(path);
}

/* A new text in which every `from` is `to`. */
static char *replaced(const char *text, const char *from, const char *to) {
  size_t length = 0, from_length = strlen(from), to_length = strlen(to), count = 0;
  for (const char *at = text; (at = strstr(at, from)); at += from_length) count++;
  char *result = must(malloc(strlen(text) + count * to_length + 1));
  for (const char *at; (at = strstr(text, from)); text = at + from_length) {
    memcpy(result + length, text, (size_t)(at - text));
    length += (size_t)(at - text);
    memcpy(result + length, to, to_length);
    length += to_length;
  }
  strcpy(result + length, text);
  return result;
}

static char *case_expand(const golden_case *c, const char *text) {
  char *half = replaced(text, "@TMP@", c->scratch);
  char *whole = replaced(half, "@ROOT@", c->root);
  free(half);
  return whole;
}

/* In place: "12,345 tokens/s" becomes "# tokens/s". */
static void mask_varying(char *text) {
  for (size_t i = 0; i < sizeof varying_units / sizeof *varying_units; i++) {
    for (char *unit = text; (unit = strstr(unit, varying_units[i])); unit++) {
      char *number = unit;
      while (number > text && strchr("0123456789,", number[-1])) number--;
      if (number == unit) continue;
      *number++ = '#';
      memmove(number, unit, strlen(unit) + 1);
      unit = number;
    }
  }
}

static char *case_fold(const golden_case *c, char *text) {
  char *half = replaced(text, c->scratch, "@TMP@");
  char *whole = replaced(half, c->root, "@ROOT@");
  free(half);
  free(text);
  mask_varying(whole);
  return whole;
}

/* One word of a command line from `*at` on, or NULL at its end. */
static char *word_next(const char **at) {
  const char *p = *at + strspn(*at, " \t\n");
  if (!*p) return NULL;
  char *word = must(malloc(strlen(p) + 1));
  size_t length = 0;
  char quote = 0;
  for (; *p && (quote || !strchr(" \t\n", *p)); p++) {
    if (quote ? *p == quote : *p == '\'' || *p == '"') quote = quote ? 0 : *p;
    else if (*p == '\\' && p[1] && (!quote || (quote == '"' && strchr("\"\\", p[1]))))
      word[length++] = *++p;
    else word[length++] = *p;
  }
  word[length] = 0;
  *at = p;
  return word;
}

static bool case_arguments(golden_case *c, const char *program) {
  char *text = case_read(c, "args");
  if (!text) return false;
  char *expanded = case_expand(c, text);
  const char *at = expanded;
  int count = 0;
  c->argv[count++] = printf_new("%s%s", program, "");
  while (count <= WORDS_MAX && (c->argv[count] = word_next(&at))) count++;
  c->argv[count] = NULL;
  free(expanded);
  free(text);
  return true;
}

/* Little of ours reaches the program, so that a case says the same for everybody. */
static void case_environment(golden_case *c) {
  const char *path = getenv("PATH");
  int count = 0;
  c->env[count++] = printf_new("PATH=%s%s", path ? path : "/usr/bin:/bin", "");
  c->env[count++] = printf_new("HOME=%s%s", c->scratch, "");
  c->env[count++] = printf_new("TMPDIR=%s%s", c->scratch, "");
  c->env[count++] =
      printf_new("TESSERA_SHARE=%s%s", c->root, ""); /* wherever the build folder is */
  static const char *const fixed[] = {
      "LC_ALL=C.UTF-8", "TZ=UTC", "TERM=dumb", "NO_COLOR=1",
      /* a sanitizer's report must not pass for one of the program's own exit codes */
      "ASAN_OPTIONS=exitcode=99", "UBSAN_OPTIONS=exitcode=99:print_stacktrace=1"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
    c->env[count++] = printf_new("%s%s", fixed[i], "");
  }
  char *text = case_read(c, "env");
  char *expanded = case_expand(c, text ? text : "");
  for (char *line = strtok(expanded, "\n"); line && count < WORDS_MAX; line = strtok(NULL, "\n")) {
    c->env[count++] = printf_new("%s%s", line, "");
  }
  /* a case says the same at every level; what its own env names comes first */
  const char *isa = getenv("TESSERA_ISA");
  if (isa) c->env[count++] = printf_new("TESSERA_ISA=%s%s", isa, "");
  c->env[count] = NULL;
  free(expanded);
  free(text);
}

static void case_child(const golden_case *c, FILE *out, FILE *err) {
  int nothing = open("/dev/null", O_RDONLY);
  if (nothing < 0 || chdir(c->folder) || dup2(nothing, 0) < 0 || dup2(fileno(out), 1) < 0 ||
      dup2(fileno(err), 2) < 0) {
    _exit(126);
  }
  alarm(SECONDS_MAX); /* survives exec: a hang ends with SIGALRM */
  execve(c->argv[0], c->argv, c->env);
  fprintf(stderr, "cannot run %s: %s\n", c->argv[0], strerror(errno));
  fflush(stderr);
  _exit(127);
}

static void case_execute(golden_case *c) {
  FILE *out = must(tmpfile()), *err = must(tmpfile());
  fflush(NULL);
  pid_t child = fork();
  if (child < 0) perror("run_golden: fork"), exit(2);
  if (child == 0) case_child(c, out, err);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  c->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  c->out = case_fold(c, stream_read(out));
  c->err = case_fold(c, stream_read(err));
  fclose(out);
  fclose(err);
}

/* Prints the lines of a text between a common head and a common tail. */
static void lines_print(const char *text, size_t from, size_t to, char mark) {
  size_t line = 0, shown = 0;
  while (*text && line < to) {
    size_t length = strcspn(text, "\n");
    if (line >= from && shown++ < LINES_SHOWN_MAX) printf("  %c %.*s\n", mark, (int)length, text);
    text += length + (text[length] == '\n');
    line++;
  }
  if (shown > LINES_SHOWN_MAX) printf("  %c (%zu more lines)\n", mark, shown - LINES_SHOWN_MAX);
}

static size_t lines_count(const char *text, size_t length) {
  size_t count = 0;
  for (size_t i = 0; i < length; i++) count += text[i] == '\n';
  return count + (length > 0 && text[length - 1] != '\n');
}

static void difference_print(const char *file, const char *want, const char *got) {
  size_t want_length = strlen(want), got_length = strlen(got), head = 0, tail = 0, start = 0;
  while (want[head] && want[head] == got[head]) {
    if (want[head++] == '\n') start = head;
  }
  size_t shorter = want_length < got_length ? want_length : got_length;
  size_t ended = 0; /* bytes of the common tail that are whole lines */
  while (tail < shorter - start && want[want_length - 1 - tail] == got[got_length - 1 - tail]) {
    if (want[want_length - 1 - tail++] == '\n') ended = tail - 1;
  }
  size_t from = lines_count(want, start);
  printf("  %s, from line %zu on (- expected, + got):\n", file, from + 1);
  lines_print(want, from, lines_count(want, want_length - ended), '-');
  lines_print(got, from, lines_count(got, got_length - ended), '+');
  if (want_length && got_length &&
      (want[want_length - 1] == '\n') != (got[got_length - 1] == '\n')) {
    printf("  one of them lacks the newline at its end\n");
  }
}

static bool stream_compare(const golden_case *c, const char *file, const char *got) {
  char *want = case_read(c, file);
  bool equal = !strcmp(want ? want : "", got);
  if (!equal) difference_print(file, want ? want : "", got);
  free(want);
  return equal;
}

static bool case_has(const golden_case *c, const char *file) {
  char *text = case_read(c, file);
  free(text);
  return text != NULL;
}

static bool case_compare(const golden_case *c) {
  char *text = case_read(c, "exit");
  int want = text ? atoi(text) : 0;
  free(text);
  bool equal = want == c->exit_code;
  if (c->exit_code == 128 + SIGALRM) printf("  stopped after %d seconds\n", SECONDS_MAX);
  else if (!equal) printf("  exit code %d, expected %d\n", c->exit_code, want);
  bool out_equal = stream_compare(c, "stdout", c->out),
       err_equal = stream_compare(c, "stderr", c->err);
  if (!equal && err_equal && *c->err) printf("  stderr was:\n%s", c->err);
  bool compares = case_has(c, "stdout") || case_has(c, "stderr");
  if (!compares) printf("  the case has neither stdout nor stderr\n");
  return equal && out_equal && err_equal && compares;
}

static void expectation_write(const golden_case *c, const char *file, const char *text) {
  if (text) {
    case_write(c, file, text);
    return;
  }
  char *path = printf_new("%s/%s", c->folder, file);
  if (remove(path) && errno != ENOENT) perror(path), exit(2);
  free(path);
}

static void case_accept(const golden_case *c) {
  char code[16];
  snprintf(code, sizeof code, "%d\n", c->exit_code);
  expectation_write(c, "stdout", *c->out || !*c->err ? c->out : NULL);
  expectation_write(c, "stderr", *c->err ? c->err : NULL);
  expectation_write(c, "exit", c->exit_code ? code : NULL);
}

static int entry_remove(const char *path, const struct stat *status, int kind, struct FTW *walk) {
  (void)status, (void)kind, (void)walk;
  return remove(path);
}

static void case_free(golden_case *c) {
  for (char **word = c->argv; *word; word++) free(*word);
  for (char **word = c->env; *word; word++) free(*word);
  free(c->out);
  free(c->err);
  nftw(c->scratch, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
}

static bool case_run(const char *program, const char *cases, const char *name, bool accept) {
  golden_case c = {.name = name, .scratch = "/tmp/tessera-golden-XXXXXX"};
  snprintf(c.folder, sizeof c.folder, "%.3000s/%.1000s", cases, name);
  must(realpath(TSR_SOURCE_ROOT, c.root));
  must(mkdtemp(c.scratch));
  bool good = case_arguments(&c, program);
  case_environment(&c);
  if (good) {
    case_execute(&c);
    if (accept) case_accept(&c);
    else good = case_compare(&c);
  } else {
    printf("  the case has no file 'args'\n");
  }
  if (!good) printf("FAILED %s (in %s)\n\n", name, c.folder);
  case_free(&c);
  return good;
}

static int is_case(const struct dirent *entry) {
  return entry->d_name[0] != '.' && entry->d_name[0] != '_';
}

static bool is_wanted(const char *cases, const char *name, char **prefixes, int count) {
  char *path = printf_new("%s/%s", cases, name);
  struct stat status;
  bool wanted = !stat(path, &status) && S_ISDIR(status.st_mode), match = count == 0;
  for (int i = 0; i < count; i++) match |= !strncmp(name, prefixes[i], strlen(prefixes[i]));
  free(path);
  return wanted && match;
}

int main(int argc, char **argv) {
  bool accept = argc > 3 && !strcmp(argv[3], "--accept");
  if (argc < 3) {
    fprintf(stderr, "usage: run_golden PROGRAM CASES [--accept] [PREFIX…]\n");
    return 2;
  }
  char *program = must(realpath(argv[1], NULL)), *cases = must(realpath(argv[2], NULL));
  struct dirent **entries;
  int found = scandir(cases, &entries, is_case, alphasort), count = 0, failed = 0;
  for (int i = 0; i < found; i++) {
    if (is_wanted(cases, entries[i]->d_name, argv + 3 + accept, argc - 3 - accept)) {
      count++;
      failed += !case_run(program, cases, entries[i]->d_name, accept);
    }
    free(entries[i]);
  }
  if (found >= 0) free(entries);
  free(program);
  free(cases);
  printf("golden: %d cases, %d failed\n", count, failed);
  return failed || count == 0;
}
