// SPDX-License-Identifier: Apache-2.0
/* Pictures as SVG 1.1, appended to a text: no scripts, no fonts or files beside it. Colours are
 * classes of one style sheet, which has a light and a dark form (prefers-color-scheme). The same
 * calls give the same bytes.
 *
 * Classes: page, panel, idle, grid, frame, soft (text), small (text), head (text), strong (text),
 * mark; c0 … c7: categories; h0 … h9: from little to much. A length that is not a finite number is
 * drawn as 0. */
#ifndef TSR_PICTURES_SVG_H
#define TSR_PICTURES_SVG_H
#include "base/text.h"

enum { TSR_SVG_CATEGORIES = 8, TSR_SVG_LEVELS = 10 };

/* What such a file begins with. */
#define TSR_SVG_BEGIN "<!-- drawn by tessera-train -->\n"

/* The document's head, with its name and its description for readers who do not see it. */
void tsr_svg_begin(tsr_text *svg, double width, double height, const char *name, const char *about);
void tsr_svg_end(tsr_text *svg);

/* `tip`: shown over it; NULL: none. */
void tsr_svg_rect(
    tsr_text *svg, const char *class, double x, double y, double width, double height,
    const char *tip);
void tsr_svg_line(tsr_text *svg, const char *class, double x1, double y1, double x2, double y2);
/* `anchor`: start, middle or end. Characters that XML does not have, and bytes that are not UTF-8,
 * are shown as "?". */
void tsr_svg_text(
    tsr_text *svg, const char *class, const char *anchor, double x, double y, const char *text);
/* The same, cut at a width in pixels, with "…" at its end. */
void tsr_svg_text_cut(
    tsr_text *svg, const char *class, double x, double y, double width, const char *text);
void tsr_svg_textf(
    tsr_text *svg, const char *class, const char *anchor, double x, double y, const char *format,
    ...) __attribute__((format(printf, 6, 7)));

/* "12.25": at most two decimals, no zeros at the end. */
tsr_short_text tsr_svg_number(double value);
/* Text with what XML reserves as entities. */
void tsr_svg_add_escaped(tsr_text *svg, const char *text);

/* The least of 1, 2, 5, 10, 20, … (and 0.5, 0.2, …) that is at least that. */
double tsr_svg_round_step(double at_least);
/* The class of the index-th of `count` things: a category, or a level where there are more; and of
 * text on it. */
const char *tsr_svg_class_of(int index, int count);
const char *tsr_svg_text_class_of(int index, int count);

#endif
