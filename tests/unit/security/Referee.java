import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509TrustManager;

/** Says of each line of standard input (truststore, type, password, PEM chain) whether Java trusts the chain. */
public class Referee {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] given = line.split("\t");
            try {
                trust(given[0], given[1], given[2], given[3]);
                System.out.println("trusted");
            } catch (Exception error) {
                System.out.println("refused: " + error);
            }
        }
    }

    /** As Kafka's DefaultSslEngineFactory. */
    private static void trust(String path, String type, String password, String chain) throws Exception {
        KeyStore store = KeyStore.getInstance(type);
        try (FileInputStream file = new FileInputStream(path)) {
            store.load(file, password.toCharArray());
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        X509TrustManager manager = (X509TrustManager) factory.getTrustManagers()[0];
        try (FileInputStream file = new FileInputStream(chain)) {
            X509Certificate[] certificates = CertificateFactory.getInstance("X.509").generateCertificates(file)
                .toArray(new X509Certificate[0]);
            manager.checkServerTrusted(certificates, "UNKNOWN"); // the key exchange, as in TLS 1.3
        }
    }
}
