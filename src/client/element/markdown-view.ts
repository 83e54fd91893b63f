import { type BlockWords, blockElement } from './markdown-blocks.ts';
import { type Links, type MarkedToken, parseMarkdown } from './markdown-lexer.ts';
import { morphChildren } from './morph.ts';

/** After a drawing, how many times its own time passes before the next one: other work must have its turn. */
const REST = 2;

/** Shows `text`; `isWhole` if it does not grow any more. */
export type ShowMarkdown = (text: string, isWhole: boolean) => void;

/** The beginning of a text, which what follows cannot change. */
interface Settled {
  readonly length: number;
  /** How many elements show it. */
  readonly elements: number;
  /** The reference links that it defines. */
  readonly links: Links;
}

const NOTHING: Settled = { length: 0, elements: 0, links: {} };

/** Makes the function that shows a text in `root`. Of a text that grows, only the last blocks are parsed again. */
export function markdownView(root: HTMLElement, words: BlockWords): ShowMarkdown {
  let settled = NOTHING;
  let before = '';
  let next = { text: '', isWhole: false };
  let timer: ReturnType<typeof setTimeout> | undefined;
  let restUntil = 0;
  function draw(): void {
    clearTimeout(timer);
    timer = undefined;
    const began = performance.now();
    const { text, isWhole } = next;
    if (!text.startsWith(before)) settled = NOTHING;
    before = text;
    try {
      settled = drawn(root, { text, settled, words });
      // A link may be defined below the text that uses it.
      if (isWhole && text.includes(']:')) settled = drawn(root, { text, settled: NOTHING, words });
    } catch {
      // A text that is too much for the parser or the page is shown as it came.
      root.textContent = text;
      settled = NOTHING;
    }
    const now = performance.now();
    restUntil = now + REST * (now - began);
  }
  return (text, isWhole) => {
    const lines = text.replace(/\r\n?/g, '\n');
    next = { text: lines, isWhole };
    const rest = restUntil - performance.now();
    if (isWhole || rest <= 0) draw();
    else timer ??= setTimeout(draw, rest);
  };
}

interface Drawing {
  readonly text: string;
  readonly settled: Settled;
  readonly words: BlockWords;
}

/** Shows what follows the settled beginning of `text`, and returns what is settled now. */
function drawn(root: HTMLElement, { text, settled, words }: Drawing): Settled {
  const blocks = parseMarkdown(text.slice(settled.length), settled.links);
  const elements = blocks.map((block) => blockElement(block, words));
  const shown = elements.flatMap((element) => element ?? []);
  morphChildren(root, shown, settled.elements);
  let { length, elements: count, links } = settled;
  for (const [at, block] of blocks.slice(0, lastButOne(blocks)).entries()) {
    if (!text.startsWith(block.raw, length)) break;
    length += block.raw.length;
    if (elements[at]) count += 1;
    if (block.type === 'def') links = { [block.tag]: block, ...links };
  }
  return { length, elements: count, links };
}

/** Where the last two blocks begin. A list goes on if the block after it becomes an item: `1. a`, an empty line, `2`. */
function lastButOne(blocks: readonly MarkedToken[]): number {
  const own = [...blocks.keys()].filter((at) => blocks[at]?.type !== 'space');
  return own.at(-2) ?? 0;
}
