const formats = new Map<string, Intl.DateTimeFormat>();

/** The time of a message as a reader of `lang` writes it, with the date unless it is today. */
export function timeText(date: Date, lang: string): string {
  const dateStyle = date.toDateString() === new Date().toDateString() ? undefined : 'medium';
  const key = `${lang} ${dateStyle}`;
  // To make a format takes longer than to use it.
  const format = formats.get(key) ?? new Intl.DateTimeFormat(lang, { dateStyle, timeStyle: 'short' });
  formats.set(key, format);
  return format.format(date);
}
