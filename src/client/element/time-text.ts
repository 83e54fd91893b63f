import type { ChatTools } from './chat-tools.ts';
import { setDisabled, setText } from './dom.ts';
import { fill } from './words.ts';

const formats = new Map<string, Intl.DateTimeFormat>();

/** The time of a message as a reader of `lang` writes it, with the date unless it is today. A short one has no time then. */
export function timeText(date: Date, lang: string, isShort = false): string {
  const dateStyle = date.toDateString() === new Date().toDateString() ? undefined : 'medium';
  const timeStyle = dateStyle && isShort ? undefined : 'short';
  const key = `${lang} ${dateStyle} ${timeStyle}`;
  // To make a format takes longer than to use it.
  const format = formats.get(key) ?? new Intl.DateTimeFormat(lang, { dateStyle, timeStyle });
  formats.set(key, format);
  return format.format(date);
}

/** A duration as a reader of `lang` reads it: in minutes if it is long, else in seconds. A short unit suits every sentence. */
function durationText(seconds: number, lang: string): string {
  const isLong = seconds > 90;
  const unit = isLong ? 'minute' : 'second';
  const format = new Intl.NumberFormat(lang, { style: 'unit', unit, unitDisplay: 'short' });
  return format.format(isLong ? Math.ceil(seconds / 60) : seconds);
}

/**
 * The seconds that are left of `seconds` from now on. The clock can be set back, and the other one can stand while the
 * computer sleeps: what has gone by is the more of both.
 */
export function timeLeft(seconds: number): () => number {
  const [date, time] = [Date.now(), performance.now()];
  return () =>
    Math.max(0, Math.ceil(seconds - Math.max(Date.now() - date, performance.now() - time) / 1_000));
}

/**
 * Makes the function that shows on a button how long it does nothing. `left` returns the seconds that are left, and
 * `waiting` is the text with `{time}` in it; `label` returns in the end.
 */
export function countdown(
  button: HTMLElement,
  { lang }: ChatTools,
  { label, waiting }: { readonly label: string; readonly waiting: string },
) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return function draw(left: () => number): void {
    clearTimeout(timer);
    const seconds = left();
    setDisabled(button, seconds > 0);
    setText(button, seconds > 0 ? fill(waiting, { time: durationText(seconds, lang) }) : label);
    if (seconds > 0) timer = setTimeout(() => button.isConnected && draw(left), 1_000);
  };
}
