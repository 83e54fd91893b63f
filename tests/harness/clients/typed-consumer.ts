import { cpSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { codeOf } from '../documents/markdown.ts';
import { ROOT } from '../documents/sources.ts';
import { type Compiler, compile } from './compile.ts';
import { type Consumer, makeConsumer } from './consumer.ts';
import { AI_SDK_CHAT, COMPONENT, MISTAKES, PROGRAM } from './consumer-programs.ts';
import { releasePath } from './release-packages.ts';

/** One project for each version of React; the package has been installed in both. */
const FOLDERS = { '18': 'react-18', '19': 'react-19' } as const;
const WRONG = `import { BotChat, BotProvider, useBot, type UseBotOptions, useSession } from 'bot-relay-client/react';
import { createElement } from 'react';
export function wrong(options: UseBotOptions) {
${MISTAKES.map((mistake) => `// @ts-expect-error\n${mistake};`).join('\n')}
}
`;

const DOCUMENT = readFileSync(join(ROOT, 'docs/front-end/client.md'), 'utf8');
/** What the document says of events of one's own. */
const EVENTS = codeOf(DOCUMENT, 'guard');

/** A page that makes the element, and refuses what is none. */
const ELEMENT = `import { BotChatElement } from 'bot-relay-client/element';
const chat: BotChatElement = document.createElement('bot-chat');
// @ts-expect-error
export const wrong: BotChatElement = document.createElement('bot-talk');
document.body.append(chat);
`;

/** Makes a project with the package, and in it one for each version of React, with programs that use it. */
export function typedConsumer(): Consumer {
  const consumer = makeConsumer(['@types/node', 'undici-types', 'react', 'ai', '@ai-sdk/react']);
  const { folder } = consumer;
  for (const [react, name] of Object.entries(FOLDERS)) {
    const modules = join(folder, name, 'node_modules');
    mkdirSync(join(modules, '@types'), { recursive: true });
    cpSync(join(folder, 'node_modules/bot-relay-client'), join(modules, 'bot-relay-client'), {
      recursive: true,
    });
    const types = react === '18' ? releasePath('types-react-18') : join(ROOT, 'node_modules/@types/react');
    symlinkSync(types, join(modules, '@types/react'));
    consumer.write({
      [`${name}/package.json`]: JSON.stringify({ type: 'module' }),
      [`${name}/page.ts`]: PROGRAM,
      [`${name}/chat.tsx`]: COMPONENT,
      [`${name}/wrong.tsx`]: WRONG,
      [`${name}/events.ts`]: EVENTS,
      [`${name}/element.ts`]: ELEMENT,
      [`${name}/ai-sdk.ts`]: AI_SDK_CHAT,
    });
  }
  return consumer;
}

const STRICT = {
  strict: true,
  exactOptionalPropertyTypes: true,
  noUncheckedIndexedAccess: true,
  noImplicitOverride: true,
  noUnusedLocals: true,
  noPropertyAccessFromIndexSignature: true,
  isolatedModules: true,
  verbatimModuleSyntax: true,
  skipLibCheck: false,
  // Only the compiler's own.
  skipDefaultLibCheck: true,
  noEmit: true,
  jsx: 'react-jsx',
  target: 'es2022',
};
const BUNDLER = { module: 'esnext', moduleResolution: 'bundler' };
const NODE = { module: 'nodenext', moduleResolution: 'nodenext' };
const DOM = { lib: ['es2022', 'dom', 'dom.iterable'] };
const ALL = ['page.ts', 'chat.tsx', 'wrong.tsx', 'events.ts', 'element.ts'];

/** How a program that uses the package is compiled. */
export interface Project {
  readonly react: keyof typeof FOLDERS;
  readonly options: object;
  readonly files: readonly string[];
}

/** In a page. */
export const PAGE: Project = { react: '19', options: { ...BUNDLER, ...DOM, types: [] }, files: ALL };
/** In a page, with the modules of Node.js. */
export const NODE_PAGE: Project = { react: '18', options: { ...NODE, ...DOM, types: [] }, files: ALL };
/** In Node.js. */
export const NODE_ALONE: Project = {
  ...{ react: '19', files: ['page.ts'] },
  options: { ...NODE, lib: ['es2022'], types: ['node'] },
};
/** In a page with the AI SDK, whose own types are not checked. */
export const AI_SDK: Project = {
  ...{ react: '19', files: ['ai-sdk.ts'] },
  options: { ...BUNDLER, ...DOM, types: [], skipLibCheck: true },
};
/** What the compiler finds in a project, whose configuration gets this name; `status` is 0 if it finds nothing. */
export function compileIn(
  consumer: Consumer,
  { react, options, files }: Project,
  { name, compiler }: { readonly name: string; readonly compiler?: Compiler },
) {
  const config = join(FOLDERS[react], `tsconfig-${name}.json`);
  consumer.write({ [config]: JSON.stringify({ compilerOptions: { ...STRICT, ...options }, files }) });
  return compile(join(consumer.folder, config), compiler);
}
