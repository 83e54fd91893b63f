import type { ChatTools } from './chat-tools.ts';
import { setDisabled, setText } from './dom.ts';
import { fill } from './words/words.ts';

const formats = new Map<string, Intl.DateTimeFormat>();

/** The time of a message in the form of `lang`, with the date unless it is today. The short form has a time only today. */
export function timeText(date: Date, lang: string, isShort = false): string {
  const dateStyle = date.toDateString() === new Date().toDateString() ? undefined : 'medium';
  const timeStyle = dateStyle && isShort ? undefined : 'short';
  const key = `${lang} ${dateStyle} ${timeStyle}`;
  // Kept, since making a format takes longer than using it.
  const format = formats.get(key) ?? new Intl.DateTimeFormat(lang, { dateStyle, timeStyle });
  formats.set(key, format);
  return format.format(date);
}

/** A duration in the form of `lang`: in minutes if it is long, else in seconds. A short unit fits into every sentence. */
function durationText(seconds: number, lang: string): string {
  const isLong = seconds > 90;
  const unit = isLong ? 'minute' : 'second';
  const format = new Intl.NumberFormat(lang, { style: 'unit', unit, unitDisplay: 'short' });
  return format.format(isLong ? Math.ceil(seconds / 60) : seconds);
}

/**
 * Makes a function that returns how many of `seconds` are left. The clock of `Date` can be set back, and that of
 * `performance` can stand while the computer sleeps: the one counts that has gone further.
 */
export function timeLeft(seconds: number): () => number {
  const [date, time] = [Date.now(), performance.now()];
  return () =>
    Math.max(0, Math.ceil(seconds - Math.max(Date.now() - date, performance.now() - time) / 1_000));
}

/**
 * Makes the function that shows on a button how long it does nothing. It gets a function that returns the seconds that are
 * left. The text is `waiting` with its `{time}`, and `label` at the end.
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
