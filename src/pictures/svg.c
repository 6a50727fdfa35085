// SPDX-License-Identifier: Apache-2.0
#include "pictures/svg.h"
#include "base/utf8.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const char style[] =
    "<style>\n"
    "text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}\n"
    "text.small{font-size:11px}text.soft,text.small.soft{fill:#59636e}\n"
    "text.strong{font-weight:600}\n"
    "text.head{font-size:17px;font-weight:600}text.on{font-size:11px;fill:#10151b}\n"
    "text.high{font-size:11px;fill:#fff}\n"
    ".page{fill:#fff}.panel{fill:#f6f8fa}.idle{fill:#e9ecf0}\n"
    ".grid{stroke:#d1d9e0;fill:none}.frame{stroke:#818b98;fill:none}\n"
    ".link{stroke:#59636e;stroke-width:2}\n"
    ".mark{stroke:#cf222e;stroke-width:1.5;stroke-dasharray:4 3;fill:none}\n"
    "text.mark{fill:#cf222e;stroke:none}\n"
    ".cell{stroke:#fff;stroke-width:.5}\n"
    ".c0{fill:#7db4e6}.c1{fill:#f0ad62}.c2{fill:#8fcf9a}.c3{fill:#d99ad0}.c4{fill:#e98f86}\n"
    ".c5{fill:#7fcfcb}\n"
    ".c6{fill:#cfc46a}.c7{fill:#a9a3e3}\n"
    ".h0{fill:#e6f0fa}.h1{fill:#d0e3f5}.h2{fill:#b5d3ee}.h3{fill:#95c0e5}.h4{fill:#73aadb}\n"
    ".h5{fill:#5292ce}\n"
    ".h6{fill:#3779bd}.h7{fill:#2360a5}.h8{fill:#154887}.h9{fill:#0b3164}\n"
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#e6edf3}text.soft,text.small.soft{fill:#9da7b3}text.on,text.high{fill:#0b0f14}\n"
    ".page{fill:#0d1117}.panel{fill:#161b22}.idle{fill:#21262d}\n"
    ".grid{stroke:#30363d}.frame{stroke:#6e7681}.link{stroke:#9da7b3}.mark{stroke:#ff7b72}\n"
    "text.mark{fill:#ff7b72}\n"
    ".cell{stroke:#0d1117}\n"
    ".c0{fill:#4f93d2}.c1{fill:#d18f41}.c2{fill:#5fae6d}.c3{fill:#b873ad}.c4{fill:#cf6b62}\n"
    ".c5{fill:#4ba9a5}\n"
    ".c6{fill:#aa9f45}.c7{fill:#857ecb}\n"
    ".h0{fill:#0f2438}.h1{fill:#12314f}.h2{fill:#164068}.h3{fill:#1b5184}.h4{fill:#2566a3}\n"
    ".h5{fill:#367dbd}\n"
    ".h6{fill:#5295d1}.h7{fill:#75afe2}.h8{fill:#9ecaf0}.h9{fill:#cbe5fb}\n"
    "}\n"
    "</style>\n";
/* clang-format on */

/* XML 1.0 has no control characters but three, and not the last two of the first plane. */
static bool is_allowed(uint32_t code) {
  return code >= 0x20 && code != 0x7f && code != 0xfffe && code != 0xffff;
}

void tsr_svg_add_escaped(tsr_text *svg, const char *text) {
  size_t left = strlen(text);
  for (int bytes; left; text += bytes, left -= (size_t)bytes) {
    uint32_t code = 0;
    bytes = tsr_utf8_next(text, left, &code);
    if (!bytes || !is_allowed(code)) {
      tsr_text_add(svg, "?");
      if (!bytes) bytes = 1;
    } else if (code == '&') tsr_text_add(svg, "&amp;");
    else if (code == '<') tsr_text_add(svg, "&lt;");
    else if (code == '>') tsr_text_add(svg, "&gt;");
    else if (code == '"') tsr_text_add(svg, "&quot;");
    else tsr_text_add_bytes(svg, text, (size_t)bytes);
  }
}

tsr_short_text tsr_svg_number(double value) {
  tsr_short_text text;
  if (!isfinite(value)) value = 0;
  int length = snprintf(text.text, sizeof text.text, "%.2f", value);
  while (text.text[length - 1] == '0') text.text[--length] = 0;
  if (text.text[length - 1] == '.') text.text[--length] = 0;
  if (!strcmp(text.text, "-0")) strcpy(text.text, "0");
  return text;
}

void tsr_svg_begin(
    tsr_text *svg, double width, double height, const char *name, const char *about) {
  tsr_short_text w = tsr_svg_number(width), h = tsr_svg_number(height);
  tsr_text_add(
      svg,
      TSR_SVG_BEGIN "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%s\" height=\"%s\" "
                    "viewBox=\"0 0 %s %s\" role=\"img\" aria-labelledby=\"name about\">\n"
                    "<title id=\"name\">",
      w.text, h.text, w.text, h.text);
  tsr_svg_add_escaped(svg, name);
  tsr_text_add(svg, "</title>\n<desc id=\"about\">");
  tsr_svg_add_escaped(svg, about);
  tsr_text_add(
      svg, "</desc>\n%s<rect class=\"page\" width=\"%s\" height=\"%s\"/>\n", style, w.text, h.text);
}

void tsr_svg_end(tsr_text *svg) { tsr_text_add(svg, "</svg>\n"); }

void tsr_svg_rect(
    tsr_text *svg, const char *class, double x, double y, double width, double height,
    const char *tip) {
  tsr_text_add(
      svg, "<rect class=\"%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"", class,
      tsr_svg_number(x).text, tsr_svg_number(y).text, tsr_svg_number(width).text,
      tsr_svg_number(height).text);
  if (!tip) {
    tsr_text_add(svg, "/>\n");
    return;
  }
  tsr_text_add(svg, "><title>");
  tsr_svg_add_escaped(svg, tip);
  tsr_text_add(svg, "</title></rect>\n");
}

void tsr_svg_line(tsr_text *svg, const char *class, double x1, double y1, double x2, double y2) {
  tsr_text_add(
      svg, "<line class=\"%s\" x1=\"%s\" y1=\"%s\" x2=\"%s\" y2=\"%s\"/>\n", class,
      tsr_svg_number(x1).text, tsr_svg_number(y1).text, tsr_svg_number(x2).text,
      tsr_svg_number(y2).text);
}

void tsr_svg_text(
    tsr_text *svg, const char *class, const char *anchor, double x, double y, const char *text) {
  tsr_text_add(svg, "<text");
  if (*class) tsr_text_add(svg, " class=\"%s\"", class);
  if (strcmp(anchor, "start")) tsr_text_add(svg, " text-anchor=\"%s\"", anchor);
  tsr_text_add(svg, " x=\"%s\" y=\"%s\">", tsr_svg_number(x).text, tsr_svg_number(y).text);
  tsr_svg_add_escaped(svg, text);
  tsr_text_add(svg, "</text>\n");
}

void tsr_svg_text_cut(
    tsr_text *svg, const char *class, double x, double y, double width, const char *text) {
  static const double of_normal = 7.2, of_small = 6.2; /* pixels of a mean character */
  size_t length = strlen(text), at = 0;
  int room = (int)(width / (strstr(class, "small") ? of_small : of_normal)), characters = 0;
  tsr_text cut = {0};
  for (size_t end = 0; end < length; characters++) {
    uint32_t code;
    int bytes = tsr_utf8_next(text + end, length - end, &code);
    end += bytes ? (size_t)bytes : 1;
    if (characters < room - 1) at = end;
  }
  if (characters > room) {
    tsr_text_add_bytes(&cut, text, at);
    tsr_text_add(&cut, "…");
  }
  tsr_svg_text(svg, class, "start", x, y, characters > room ? cut.data : text);
  tsr_text_free(&cut);
}

void tsr_svg_textf(
    tsr_text *svg, const char *class, const char *anchor, double x, double y, const char *format,
    ...) {
  char buffer[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  tsr_svg_text(svg, class, anchor, x, y, buffer);
}

double tsr_svg_round_step(double at_least) {
  double step = 1;
  if (!(at_least > 0 && at_least < 1e300)) return step;
  while (step < at_least) step *= 10;
  while (step / 10 >= at_least) step /= 10;
  return step / 5 >= at_least ? step / 5 : step / 2 >= at_least ? step / 2 : step;
}

const char *tsr_svg_text_class_of(int index, int count) {
  if (count <= TSR_SVG_CATEGORIES) return "on";
  return 2 * (int64_t)index < count ? "small" : "high";
}

const char *tsr_svg_class_of(int index, int count) {
  static const char *const categories[] = {"c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"};
  static const char *const levels[] = {"h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9"};
  if (count <= TSR_SVG_CATEGORIES) return categories[index];
  return levels[(int)((int64_t)index * TSR_SVG_LEVELS / count)];
}
