import { describe, expect, test } from '@jest/globals';
import { chart } from '../../bench/report/chart.ts';
import { SUMMARY } from '../../bench/report/grids.ts';
import { FIGURES } from '../../bench/report/results.ts';
import { samplePeer, sampleResults } from './sample-results.ts';

interface Element {
  readonly kind: string;
  readonly attributes: Readonly<Record<string, string>>;
  readonly text: string;
}

/** The elements of `svg` that contain no other elements, in order. */
function elementsOf(svg: string): Element[] {
  return [...svg.matchAll(/<(\w+)([^<>]*?)(?:\/>|>([^<]*)(?=<))/g)].map(
    ([, kind = '', attributes = '', text = '']) => ({
      kind,
      attributes: Object.fromEntries(
        [...attributes.matchAll(/([\w-]+)="([^"]*)"/g)].map(([, ...pair]) => pair),
      ),
      text,
    }),
  );
}

const ofClass = (elements: readonly Element[], name: string) =>
  elements.filter(({ attributes }) => attributes.class?.split(' ').includes(name));
const px = ({ attributes }: Element, name: string) => Number(attributes[name]);

describe('the chart', () => {
  const results = sampleResults();
  const svg = chart(results);
  const elements = elementsOf(svg);

  test('has a panel for each figure of the summary, and lower is better in all of them', () => {
    expect(ofClass(elements, 'title').map(({ text }) => text)).toEqual([
      'CPU per event',
      'CPU per message',
      'Memory per stream, 5,000 open',
      'Added delay of an event, p50',
    ]);
    expect(SUMMARY.map((name) => FIGURES[name].better)).toEqual(SUMMARY.map(() => 'lower'));
  });

  test('has a bar, a whisker and a value for every figure, and a dash where there is none', () => {
    const taken = results.peers.flatMap(({ figures }) => SUMMARY.flatMap((name) => figures[name] ?? []));
    expect(taken).toHaveLength(4 * 9 - 1);
    expect(ofClass(elements, 'bar')).toHaveLength(taken.length);
    expect(ofClass(elements, 'whisker')).toHaveLength(taken.length);
    const values = ofClass(elements, 'value').map(({ text }) => text);
    expect(values).toHaveLength(taken.length + 1);
    expect(values.slice(0, 3)).toEqual(['40.0', '31.0', '70.0']);
    expect(values.filter((value) => value === '–')).toHaveLength(1);
    expect(values).toContain('1,204');
    expect(svg).toContain('–: could not be measured.');
  });

  test('has bars from zero, as long as the medians are large', () => {
    const [nginx, haproxy] = ofClass(elements, 'bar') as [Element, Element];
    expect(px(nginx, 'width') / px(haproxy, 'width')).toBeCloseTo(40 / 31, 1);
    expect(px(nginx, 'x')).toBe(px(haproxy, 'x'));
    expect(px(ofClass(elements, 'axis')[0] as Element, 'x1')).toBe(px(nginx, 'x'));
  });

  test('stays inside its picture, 800 px wide', () => {
    expect(svg).toMatch(/viewBox="0 0 800 (\d+)" width="800" height="\1"/);
    const height = Number(/height="(\d+)"/.exec(svg)?.[1]);
    const shapes = elements.filter(({ attributes }) => attributes.x && attributes.y);
    expect(shapes.filter((one) => px(one, 'x') < 0 || px(one, 'x') + (px(one, 'width') || 0) > 800)).toEqual(
      [],
    );
    expect(shapes.filter((one) => px(one, 'y') + (px(one, 'height') || 0) > height)).toEqual([]);
  });

  test('has a description with the same content for people who cannot see it', () => {
    expect(svg).toMatch(/^<svg [^>]*role="img" aria-labelledby="title description"/);
    expect(elements.find(({ kind }) => kind === 'title')?.attributes).toEqual({ id: 'title' });
    const description = elements.find(({ kind }) => kind === 'desc');
    expect(description?.attributes).toEqual({ id: 'description' });
    expect(description?.text).toContain('CPU per event, in µs: nginx 40.0; HAProxy 31.0;');
    expect(description?.text).toContain('@fastify/http-proxy not measured;');
  });

  test('escapes all texts of the results', () => {
    const made = chart({
      ...sampleResults([samplePeer(`<a> & "b" 'c'\u0007`, { cpuPerEvent: 1 })]),
      machine: '<m>',
    });
    expect(made).toContain('>&lt;a&gt; &amp; &quot;b&quot; &apos;c&apos;<');
    expect(made).toContain('&lt;m&gt;');
    expect(made).not.toMatch(/<a>|<m>/);
    expect(made).not.toContain('\u0007');
  });

  test('is a picture also without any results', () => {
    expect(chart(sampleResults([]))).not.toMatch(/NaN|Infinity/);
    expect(chart(sampleResults([samplePeer('nginx', { cpuPerEvent: 0 })]))).not.toMatch(/NaN|Infinity/);
  });
});
