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
import { exampleProject, type Project } from '../harness/clients/example-project.ts';
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
