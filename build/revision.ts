import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';

// The commit that is built: that of REVISION where there is no repository, as in an image.
const root = new URL('../', import.meta.url);
const git = spawnSync('git', ['rev-parse', '--short=12', 'HEAD'], { cwd: root, encoding: 'utf8' });
const revision = process.env.REVISION || (git.status === 0 && git.stdout.trim()) || 'unknown';
writeFileSync(new URL('dist/revision.txt', root), `${revision}\n`);
