/** One sample of a scrape. */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Parses a scrape in Prometheus's text format. */
export function samplesOf(text: string): Sample[] {
  return text
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => {
      const [, name = '', labels = '', value = ''] =
        /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
      if (name === '') throw new Error(`not a sample: ${line}`);
      const pairs = labels.matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g);
      return {
        name,
        labels: Object.fromEntries([...pairs].map(([, label = '', text = '']) => [label, text])),
        value: Number(value),
      };
    });
}

/** The sum of the samples named `name` that have these labels; 0 if there are none. */
export function total(text: string, name: string, labels: Readonly<Record<string, string>> = {}): number {
  return samplesOf(text)
    .filter((sample) => sample.name === name)
    .filter((sample) => Object.entries(labels).every(([label, value]) => sample.labels[label] === value))
    .reduce((sum, { value }) => sum + value, 0);
}
