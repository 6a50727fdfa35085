// SPDX-License-Identifier: Apache-2.0
#include "base/uri.h"
#include <ctype.h>
#include <string.h>
#include <strings.h>

/* The length of the scheme before "://", or of "file" before ":"; 0: a path. */
static size_t scheme_length(const char *text) {
  if (!strncasecmp(text, "file:", 5)) return 4;
  if (!isalpha((unsigned char)*text)) return 0;
  size_t n = 1;
  while (isalnum((unsigned char)text[n]) || (text[n] && strchr("+-.", text[n]))) n++;
  return strncmp(text + n, "://", 3) ? 0 : n;
}

static int hex_digit(char c) {
  static const char digits[] = "0123456789abcdef";
  const char *at = c ? strchr(digits, tolower((unsigned char)c)) : NULL;
  return at ? (int)(at - digits) : -1;
}

/* Resolves %XX in place. */
static bool unescape(char *path) {
  char *to = path;
  for (const char *at = path; *at; at++) {
    if (*at != '%') {
      *to++ = *at;
      continue;
    }
    int high = hex_digit(at[1]), low = high < 0 ? -1 : hex_digit(at[2]);
    if (low < 0 || !(high | low)) return false;
    *to++ = (char)(high * 16 + low);
    at += 2;
  }
  *to = 0;
  return true;
}

/* `gs:/x` is a URI that lacks a slash, and no folder called `gs:`. */
static bool check_slashes(const char *text, tsr_location location, tsr_diags *diags) {
  static const char *const schemes[] = {"s3",   "gs",   "gcs",   "az",  "abfs",
                                        "hdfs", "http", "https", "ftp", "hf"};
  for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
    size_t n = strlen(schemes[i]);
    if (strncasecmp(text, schemes[i], n) || strncmp(text + n, ":/", 2)) continue;
    tsr_diag_error(
        diags, location, "'%s' looks like a URI of '%s', which begins with %s://", text, schemes[i],
        schemes[i]);
    tsr_diag_hint(
        diags, "there is no access to '%s'; a folder of that name is ./%.*s", schemes[i],
        (int)(n + 1), text);
    return false;
  }
  return true;
}

/* `~/x` and `$HOME/x` are words of a shell, and no folders called `~` and `$HOME`. */
static bool check_shell(const char *text, tsr_location location, tsr_diags *diags) {
  bool home = *text == '~' && (!text[1] || text[1] == '/');
  bool variable = *text == '$' && (isalpha((unsigned char)text[1]) || text[1] == '_');
  if (!home && !variable) return true;
  int length = 1 + (int)strspn(
                       text + 1, home ? ""
                                      : "_0123456789abcdefghijklmnopqrstuvwxyz"
                                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
  tsr_diag_error(
      diags, location, "'%s' begins with '%.*s', which a shell replaces and this program does not",
      text, length, text);
  if (location.file)
    tsr_diag_hint(
        diags, "${%.*s}%s; a folder of that name is ./%.*s", home ? 4 : length - 1,
        home ? "HOME" : text + 1, text + length, length, text);
  else tsr_diag_hint(diags, "a folder of that name is ./%.*s", length, text);
  return false;
}

bool tsr_uri_path(
    tsr_arena *arena, const char *text, tsr_location location, const char **ret_path,
    tsr_diags *diags) {
  size_t n = scheme_length(text);
  *ret_path = text;
  if (!n) return check_slashes(text, location, diags) && check_shell(text, location, diags);
  if (strncasecmp(text, "file", n) || n != 4) {
    tsr_diag_error(
        diags, location, "'%s': files are read and written by path; there is no access to '%.*s'",
        text, (int)n, text);
    tsr_diag_hint(diags, "copy it, or mount it as a folder of this machine");
    return false;
  }
  const char *path = text + 5;
  if (!strncmp(path, "//", 2)) {
    path += 2;
    if (!strncasecmp(path, "localhost/", 10)) path += 9;
    if (*path != '/') {
      tsr_diag_error(
          diags, location, "'%s' names the host '%.*s'", text, (int)strcspn(path, "/"), path);
      tsr_diag_hint(diags, "a file of this machine: file:///PATH");
      return false;
    }
  }
  char *unescaped = tsr_arena_strdup(arena, path);
  if (!*path || !unescape(unescaped))
    return tsr_diag_error(
        diags, location, "'%s' is no URI of a file: %s", text,
        *path ? "a '%' is not followed by two hexadecimal digits" : "it names no path");
  *ret_path = unescaped;
  return true;
}
