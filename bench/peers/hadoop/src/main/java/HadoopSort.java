import java.io.DataOutputStream;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.io.BytesWritable;
import org.apache.hadoop.io.LongWritable;
import org.apache.hadoop.io.NullWritable;
import org.apache.hadoop.io.Writable;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.RecordWriter;
import org.apache.hadoop.mapreduce.Reducer;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.lib.input.FileInputFormat;
import org.apache.hadoop.mapreduce.lib.input.FixedLengthInputFormat;
import org.apache.hadoop.mapreduce.lib.output.FileOutputFormat;

/**
 * Sorts a file of fixed-length records with Hadoop's local job runner: 100-byte records by their first ten bytes, or
 * little-endian u64 integers below 2^63 by value. One reducer writes one file, `part-r-00000`, in the directory OUTPUT.
 *
 * <pre>HadoopSort records|u64 INPUT OUTPUT TEMP SORT_MIB SPLIT_BYTES FACTOR MAPS</pre>
 *
 * SORT_MIB is a map task's sort buffer, SPLIT_BYTES the input of a map task, FACTOR the most files that are merged at
 * once, MAPS the map tasks at a time. The heap is that of the Java command.
 */
public final class HadoopSort {
    private static final int RECORD = 100;
    private static final int KEY = 10;

    private HadoopSort() {}

    /** Cuts a record into key and payload. */
    public static final class Records extends Mapper<LongWritable, BytesWritable, BytesWritable, BytesWritable> {
        private final BytesWritable key = new BytesWritable();
        private final BytesWritable payload = new BytesWritable();

        @Override
        protected void map(LongWritable offset, BytesWritable record, Context context)
                throws IOException, InterruptedException {
            key.set(record.getBytes(), 0, KEY);
            payload.set(record.getBytes(), KEY, RECORD - KEY);
            context.write(key, payload);
        }
    }

    /** Takes an integer as the key; there is nothing else. */
    public static final class Integers extends Mapper<LongWritable, BytesWritable, LongWritable, NullWritable> {
        private final LongWritable key = new LongWritable();

        @Override
        protected void map(LongWritable offset, BytesWritable record, Context context)
                throws IOException, InterruptedException {
            final byte[] bytes = record.getBytes();
            long value = 0;
            for (int at = Long.BYTES - 1; at >= 0; at--) {
                value = value << 8 | bytes[at] & 0xff;
            }
            key.set(value);
            context.write(key, NullWritable.get());
        }
    }

    /** Writes keys and payloads as they lay in the input. */
    public static final class RawOutput<K extends Writable, V extends Writable> extends FileOutputFormat<K, V> {
        @Override
        public RecordWriter<K, V> getRecordWriter(TaskAttemptContext task) throws IOException {
            final Path path = getDefaultWorkFile(task, "");
            final DataOutputStream out = path.getFileSystem(task.getConfiguration()).create(path, false, 1 << 20);
            return new RecordWriter<>() {
                @Override
                public void write(K key, V payload) throws IOException {
                    if (key instanceof LongWritable integer) {
                        out.writeLong(Long.reverseBytes(integer.get()));
                        return;
                    }
                    for (Writable part : new Writable[] {key, payload}) {
                        final BytesWritable bytes = (BytesWritable) part;
                        out.write(bytes.getBytes(), 0, bytes.getLength());
                    }
                }

                @Override
                public void close(TaskAttemptContext done) throws IOException {
                    out.close();
                }
            };
        }
    }

    private static Configuration settings(String[] words) {
        final Configuration conf = new Configuration();
        conf.set("mapreduce.framework.name", "local");
        conf.set("hadoop.tmp.dir", words[3]);
        conf.set("mapreduce.cluster.local.dir", words[3]);
        conf.setInt("mapreduce.task.io.sort.mb", Integer.parseInt(words[4]));
        conf.setInt("mapreduce.task.io.sort.factor", Integer.parseInt(words[6]));
        conf.setInt("mapreduce.local.map.tasks.maximum", Integer.parseInt(words[7]));
        conf.setFloat("mapreduce.map.sort.spill.percent", 0.95f);
        conf.setInt("io.file.buffer.size", 1 << 16);
        conf.setLong("mapreduce.input.fileinputformat.split.minsize", Long.parseLong(words[5]));
        conf.setLong("mapreduce.input.fileinputformat.split.maxsize", Long.parseLong(words[5]));
        return conf;
    }

    public static void main(String[] words) throws Exception {
        if (words.length != 8) {
            System.err.println("HadoopSort records|u64 INPUT OUTPUT TEMP SORT_MIB SPLIT_BYTES FACTOR MAPS");
            System.exit(2);
        }
        final boolean integers = words[0].equals("u64");
        final Configuration conf = settings(words);
        FixedLengthInputFormat.setRecordLength(conf, integers ? Long.BYTES : RECORD);
        final Job job = Job.getInstance(conf, "sort");
        job.setJarByClass(HadoopSort.class);
        job.setInputFormatClass(FixedLengthInputFormat.class);
        job.setOutputFormatClass(RawOutput.class);
        job.setMapperClass(integers ? Integers.class : Records.class);
        job.setReducerClass(Reducer.class);
        job.setNumReduceTasks(1);
        job.setOutputKeyClass(integers ? LongWritable.class : BytesWritable.class);
        job.setOutputValueClass(integers ? NullWritable.class : BytesWritable.class);
        FileInputFormat.addInputPath(job, new Path("file:" + words[1]));
        FileOutputFormat.setOutputPath(job, new Path("file:" + words[2]));
        System.exit(job.waitForCompletion(false) ? 0 : 1);
    }
}
