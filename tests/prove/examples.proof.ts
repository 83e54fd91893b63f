import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, jest, test } from '@jest/globals';
import { describeInChromium, oneChromium } from '../harness/browser/chromium.ts';
import {
  callsOnce,
  getsAnAnswer,
  goesOnAfterReload,
  listsChats,
  noticesBreak,
  showsFailedSignOut,
  signsIn,
  stopsAnAnswer,
} from '../harness/browser/example-page.ts';
import { TARBALL } from '../harness/clients/consumer.ts';
import { emptyProject, exampleProject, type Project } from '../harness/clients/example-project.ts';
import { codeOf } from '../harness/documents/markdown.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { freePort } from '../harness/relay/free-port.ts';
import { startProcess, stopProcesses } from '../harness/relay/process.ts';

let project: Project | undefined;
afterEach(async () => {
  await project?.remove();
  project = undefined;
  await stopProcesses();
});

/** How each is built, if it is, and served. The last word of a command is the port. */
const BUILT_BY_VITE = ['npm run build', 'npm run preview -- --strictPort --port'] as const;
const SERVED = {
  plain: ['', 'npm run dev --'],
  'vite-react': BUILT_BY_VITE,
  vue: BUILT_BY_VITE,
  svelte: BUILT_BY_VITE,
  next: ['npm run build', 'npm start -- --port'],
} as const;

describeInChromium('an example', () => {
  const chromium = oneChromium();
  jest.setTimeout(480_000);

  test.each(Object.entries(SERVED))(
    '%s is installed, built and served, and has the chat',
    async (name, [build, serve]) => {
      const [relayPort, port] = [await freePort(), await freePort()];
      const relay = startProcess({ environment: { PORT: String(relayPort) } });
      project = await exampleProject(name, relayPort, port);
      await project.install('npm install --no-audit --no-fund');
      if (build) await project.run(build);
      const url = await project.serve(serve, port);
      if (name === 'next') expect(await (await fetch(url)).text()).toContain('One moment');
      const { page, complaints } = await chromium.open(url);
      await signsIn(page);
      await getsAnAnswer(page);
      await stopsAnAnswer(page);
      // Next has an empty one.
      expect(await page.getByRole('alert').filter({ hasText: /\S/ }).count()).toBe(0);
      await goesOnAfterReload(page, relay);
      await getsAnAnswer(page);
      // One for each that was said: nothing was sent twice.
      expect(await callsOnce(relay, 4, 1)).toEqual([4, 1]);
      if (name === 'vite-react') await listsChats(page);
      expect(complaints).toEqual([]);
      await showsFailedSignOut(page);
      const ms = await noticesBreak(page, relay);
      process.stderr.write(`${name}: a broken stream is noticed after ${ms.toFixed(0)} ms\n`);
      // The client itself gives a silent stream up after 45 s.
      expect(ms).toBeLessThan(5_000);
    },
  );
});

const documents = readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.md'))
  .map((name) => readFileSync(join(ROOT, 'docs', name), 'utf8'))
  .join('\n');

const OPTIONS = {
  ...{ strict: true, noEmit: true, skipLibCheck: true, types: [], target: 'es2022', module: 'es2022' },
  ...{
    moduleResolution: 'bundler',
    lib: ['es2022', 'dom', 'dom.iterable'],
    rewriteRelativeImportExtensions: true,
  },
};

/** The frameworks of which the documents have a snippet and no example: how its types are checked. */
const SNIPPETS = {
  solid: {
    install: 'npm install solid-js@1.9.19 typescript@7.0.2',
    config: { compilerOptions: { ...OPTIONS, jsx: 'preserve', jsxImportSource: 'solid-js' } },
    files: { 'messages.tsx': codeOf(documents, 'solid') },
    mistake: ['messages', 'mesages'],
    check: 'npx tsc',
  },
  angular: {
    install:
      'npm install @angular/core@22.2.6 @angular/compiler@22.2.6 @angular/compiler-cli@22.2.6 rxjs@7.8.2 typescript@6.0.3',
    config: { compilerOptions: OPTIONS, angularCompilerOptions: { strictTemplates: true } },
    files: { 'messages.ts': codeOf(documents, 'angular') },
    mistake: ['messages', 'mesages'],
    check: 'npx ngc',
  },
  'assistant-ui': {
    install: [
      ...[codeOf(documents, 'install-ai-sdk'), codeOf(documents, 'install-assistant-ui')],
      'npm install react@19.3.1 react-dom@19.3.1 @types/react@19.3.0 typescript@7.0.2',
    ].join(''),
    config: { compilerOptions: { ...OPTIONS, jsx: 'react-jsx' } },
    files: {
      'chat.tsx': codeOf(documents, 'ai-sdk').replace(/^(const chat|function useLoaded)/gm, 'export $1'),
      'talk.tsx': `import { chat, useLoaded } from './chat.tsx';\n${codeOf(documents, 'assistant-ui')}`,
    },
    mistake: ['Parts', 'Pieces'],
    check: 'npx tsc',
  },
} as const;

test.each(Object.entries(SNIPPETS))(
  'the types of the snippet of %s are checked: one mistake is the only error',
  async (name, { install, config, files, mistake: [right, wrong], check }) => {
    project = emptyProject(name, 0);
    project.write('package.json', '{ "type": "module" }');
    await project.install(`npm install ${TARBALL}\n${install}`);
    project.write('tsconfig.json', JSON.stringify({ ...config, include: Object.keys(files) }));
    for (const [file, text] of Object.entries(files))
      project.write(file, text.replace(`.${right}`, `.${wrong}`));
    const found = await project.run(check).catch(String);
    expect(found?.match(/TS\d+:.*/g)).toEqual([expect.stringContaining(`'${wrong}'`)]);
  },
);
