/** Writes the chart and the tables again from the stored results, for example after a change of their form. */
import { readResults, writeReport } from './write.ts';

writeReport(readResults());
