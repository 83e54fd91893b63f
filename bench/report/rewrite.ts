/** Writes the chart and the tables again from the stored results, for example after a change of their form. */
import { readResults, writeReport } from './write.ts';

const results = readResults();
if (results) writeReport(results);
else {
  console.error('There are no results yet: npm run bench takes them.');
  process.exitCode = 1;
}
