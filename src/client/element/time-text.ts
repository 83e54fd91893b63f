import type { MessageMetadata } from '../channel/channel-types.ts';
import type { ChatTools } from './chat-tools.ts';
import { newElement, setDisabled, setText } from './dom.ts';
import { fill } from './words/words.ts';

const formats = new Map<string, Intl.DateTimeFormat>();

/** A date in the form of `lang`. */
function dateText(date: Date, lang: string, options: Intl.DateTimeFormatOptions): string {
  const key = `${lang} ${JSON.stringify(options)}`;
  // Kept, since making a format takes longer than using it.
  const format = formats.get(key) ?? new Intl.DateTimeFormat(lang, options);
  formats.set(key, format);
  return format.format(date);
}

/** The time of a day that is today, or the date of another one, in the form of `lang`. */
export function timeText(date: Date, lang: string): string {
  const isToday = date.toDateString() === new Date().toDateString();
  return dateText(date, lang, isToday ? { timeStyle: 'short' } : { dateStyle: 'medium' });
}

/** The day of a message in the form of `lang`: "today", "yesterday", or a date. */
export function dayText(at: number, lang: string): string {
  const [day, today] = [new Date(at), new Date()].map((one) => one.setHours(0, 0, 0, 0));
  const daysAgo = Math.round(((today ?? 0) - (day ?? 0)) / (24 * 3_600_000));
  if (daysAgo === 0 || daysAgo === 1)
    return new Intl.RelativeTimeFormat(lang, { numeric: 'auto' }).format(-daysAgo, 'day');
  return dateText(new Date(at), lang, { dateStyle: 'long' });
}

/** The time at which a message was sent, if that is known. */
export function sentTime({ createdAt }: MessageMetadata, lang: string): HTMLElement[] {
  if (createdAt === undefined) return [];
  const date = new Date(createdAt);
  const text = dateText(date, lang, { timeStyle: 'short' });
  const title = dateText(date, lang, { dateStyle: 'full', timeStyle: 'short' });
  return [newElement('time', { class: 'note', datetime: date.toISOString(), title }, text)];
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
