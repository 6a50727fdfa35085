// SPDX-License-Identifier: Apache-2.0
#include "base/terminal.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static struct {
  int screen;               /* the terminal */
  int streams[3];           /* 1 and 2: what the standard streams were; -1: they are no terminal */
  int kept[3];              /* the files in memory that they are meanwhile */
  _Atomic off_t dropped[3]; /* bytes of these that are not kept any more */
  struct termios before;    /* the terminal's modes */
  atomic_bool is_open;      /* the picture may be drawn */
  atomic_bool is_away;      /* the process was stopped, and the terminal is another job's */
  atomic_bool is_damaged;   /* it has to be drawn as a whole */
  atomic_int writers;
} terminal = {.screen = -1, .streams = {-1, -1, -1}, .kept = {-1, -1, -1}};

/* The other screen, no cursor, no line breaks at the right border; and back. */
static const char enter_text[] = "\033[?1049h\033[?25l\033[?7l\033[2J";
static const char leave_text[] = "\033[0m\033[?7h\033[?25h\033[?1049l";

static struct sigaction actions_before[NSIG]; /* of signals that end the process */

/* ---- what it is ---- */

static const char *variable(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

bool tsr_terminal_can_draw(void) {
  const char *term = variable("TERM");
  return term && strcmp(term, "dumb") != 0 && isatty(STDOUT_FILENO);
}

bool tsr_terminal_has_colours(void) { return !variable("NO_COLOR"); }

bool tsr_terminal_is_utf8(void) {
  const char *locale = variable("LC_ALL");
  if (!locale) locale = variable("LC_CTYPE");
  if (!locale) locale = variable("LANG");
  return locale && (strcasestr(locale, "utf-8") || strcasestr(locale, "utf8"));
}

void tsr_terminal_size(int *ret_rows, int *ret_columns) {
  enum { ROWS = 24, COLUMNS = 80 };
  struct winsize size = {0};
  bool known = terminal.screen >= 0 && !ioctl(terminal.screen, TIOCGWINSZ, &size);
  *ret_rows = known && size.ws_row ? size.ws_row : ROWS;
  *ret_columns = known && size.ws_col ? size.ws_col : COLUMNS;
}

/* ---- bytes ---- */

static void write_all(int fd, const char *bytes, size_t length) {
  while (length) {
    ssize_t n = write(fd, bytes, length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    bytes += n;
    length -= (size_t)n;
  }
}

/* Where there are no jobs, it does. */
static bool has_terminal(void) {
  pid_t job = tcgetpgrp(terminal.screen);
  return job < 0 || job == getpgrp();
}

static void enter(void) {
  struct termios modes = terminal.before;
  modes.c_lflag &= ~(tcflag_t)(ECHO | ICANON); /* keys that are signals still are */
  tcsetattr(terminal.screen, TCSANOW, &modes);
  write_all(terminal.screen, enter_text, sizeof enter_text - 1);
  atomic_store(&terminal.is_damaged, true);
}

static void leave_screen(void) {
  tcsetattr(terminal.screen, TCSANOW, &terminal.before);
  write_all(terminal.screen, leave_text, sizeof leave_text - 1);
}

/* ---- what is kept ---- */

/* Writers add at the end, so the length stays; the memory of the begin is given back. */
void tsr_terminal_trim(void) {
  enum { KEPT = TSR_TERMINAL_KEPT, PAGE = 4096 };
  for (int stream = STDOUT_FILENO; stream <= STDERR_FILENO; stream++) {
    struct stat info;
    off_t dropped = atomic_load(&terminal.dropped[stream]);
    if (terminal.kept[stream] < 0 || fstat(terminal.kept[stream], &info)) continue;
    if (info.st_size - dropped < 2 * (off_t)KEPT) continue;
    off_t end = (info.st_size - KEPT) / PAGE * PAGE;
    atomic_store(&terminal.dropped[stream], end);
    fallocate(terminal.kept[stream], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, end);
  }
}

/* Where the first whole line behind `at` begins. */
static off_t line_behind(int file, off_t at) {
  char block[4096];
  for (ssize_t n; (n = pread(file, block, sizeof block, at)) > 0; at += n) {
    const char *newline = memchr(block, '\n', (size_t)n);
    if (newline) return at + (newline - block) + 1;
  }
  return at;
}

/* A handler of signals calls it, which may not format numbers. */
static void write_dropped(int stream, off_t bytes) {
  static const char text[] = " bytes that were printed before are left out\n";
  char digits[24], *at = digits + sizeof digits;
  for (; bytes; bytes /= 10) *--at = (char)('0' + bytes % 10);
  write_all(stream, at, (size_t)(digits + sizeof digits - at));
  write_all(stream, text, sizeof text - 1);
}

/* Gives a stream back, with what it was given meanwhile. */
static void give_back(int stream) {
  char block[4096];
  int kept = terminal.kept[stream];
  off_t at = atomic_load(&terminal.dropped[stream]);
  if (terminal.streams[stream] < 0) return;
  dup2(terminal.streams[stream], stream);
  if (at) at = line_behind(kept, at);
  if (at) write_dropped(stream, at);
  for (ssize_t n; (n = pread(kept, block, sizeof block, at)) > 0; at += n)
    write_all(stream, block, (size_t)n);
}

void tsr_terminal_leave(void) {
  enum { REST_NS = 2000000, RESTS = 50 };
  int error = errno;
  if (!atomic_exchange(&terminal.is_open, false)) return;
  for (int i = 0; i < RESTS && atomic_load(&terminal.writers); i++)
    nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
  if (!atomic_load(&terminal.is_away)) leave_screen();
  give_back(STDOUT_FILENO);
  give_back(STDERR_FILENO);
  errno = error;
}

/* ---- signals ---- */

static void on_resize(int number) {
  (void)number;
  atomic_store(&terminal.is_damaged, true);
}

static void on_end(int number) {
  tsr_terminal_leave();
  sigaction(number, &actions_before[number], NULL);
  raise(number); /* behind this handler */
}

static void come_back(void) {
  bool ours = has_terminal();
  atomic_store(&terminal.is_away, !ours);
  if (ours) enter();
}

static void on_stop(int number) {
  sigset_t stop;
  int error = errno;
  if (atomic_load(&terminal.is_open) && !atomic_exchange(&terminal.is_away, true)) leave_screen();
  sigemptyset(&stop);
  sigaddset(&stop, number);
  signal(number, SIG_DFL);
  raise(number);
  pthread_sigmask(SIG_UNBLOCK, &stop, NULL); /* the process stops here, until it continues */
  signal(number, on_stop);
  if (atomic_load(&terminal.is_open)) come_back();
  errno = error;
}

/* Whether the signal ends a process that has no handler for it: signal(7). */
static bool ends_process(int number) {
  static const int others[] = {SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
                               SIGCONT, SIGCHLD, SIGURG,  SIGWINCH};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (others[i] == number) return false;
  return true;
}

/* Those of a crash are caught where another handler is, too: it runs behind this one. */
static bool is_crash(int number) {
  return number == SIGSEGV || number == SIGFPE || number == SIGILL || number == SIGABRT ||
         number == SIGQUIT;
}

static void catch_ends(void) {
  struct sigaction end = {.sa_handler = on_end};
  sigemptyset(&end.sa_mask);
  for (int number = 1; number < NSIG; number++) {
    struct sigaction *before = &actions_before[number];
    if (!ends_process(number) || sigaction(number, NULL, before)) continue;
    bool is_default = !(before->sa_flags & SA_SIGINFO) && before->sa_handler == SIG_DFL;
    if (is_default || is_crash(number)) sigaction(number, &end, NULL);
  }
}

static void catch_signals(void) {
  struct sigaction resize = {.sa_handler = on_resize, .sa_flags = SA_RESTART};
  sigemptyset(&resize.sa_mask);
  catch_ends();
  sigaction(SIGWINCH, &resize, NULL);
  if (signal(SIGTSTP, on_stop) == SIG_IGN) signal(SIGTSTP, SIG_IGN);
}

/* ---- opening ---- */

/* What a stream is given goes to memory from here on. */
static bool keep(int stream) {
  int file = memfd_create("output", MFD_CLOEXEC), before = dup(stream);
  bool ok =
      file >= 0 && before >= 0 && fcntl(file, F_SETFL, O_APPEND) == 0 && dup2(file, stream) >= 0;
  if (ok) terminal.streams[stream] = before, terminal.kept[stream] = file;
  if (!ok && file >= 0) close(file);
  if (!ok && before >= 0) close(before);
  return ok;
}

bool tsr_terminal_open(void) {
  bool errors = isatty(STDERR_FILENO);
  if (terminal.screen >= 0 || !tsr_terminal_can_draw()) return false;
  int screen = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  if (screen < 0) return false;
  terminal.screen = screen;
  fflush(stdout);
  fflush(stderr);
  bool ok = has_terminal() && !tcgetattr(screen, &terminal.before) && keep(STDOUT_FILENO) &&
            (!errors || keep(STDERR_FILENO));
  if (!ok) {
    give_back(STDOUT_FILENO);
    return false;
  }
  catch_signals();
  atexit(tsr_terminal_leave);
  enter();
  atomic_store(&terminal.is_open, true);
  return true;
}

/* ---- drawing ---- */

bool tsr_terminal_take_damage(void) {
  if (atomic_load(&terminal.is_open) && atomic_load(&terminal.is_away)) come_back();
  return atomic_exchange(&terminal.is_damaged, false);
}

void tsr_terminal_write(const char *bytes, size_t length) {
  atomic_fetch_add(&terminal.writers, 1);
  if (atomic_load(&terminal.is_open) && !atomic_load(&terminal.is_away) && has_terminal())
    write_all(terminal.screen, bytes, length);
  atomic_fetch_sub(&terminal.writers, 1);
}

size_t tsr_terminal_read_errors(char *ret, size_t most) {
  if (!atomic_load(&terminal.is_open) || terminal.streams[STDERR_FILENO] < 0) return 0;
  struct stat info;
  int kept = terminal.kept[STDERR_FILENO];
  off_t end = fstat(kept, &info) ? 0 : info.st_size;
  ssize_t n = end > 0 ? pread(kept, ret, most, end > (off_t)most ? end - (off_t)most : 0) : 0;
  return n > 0 ? (size_t)n : 0;
}
