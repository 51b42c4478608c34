//! Chains of audit records that are shortened.

use super::World;
use crate::audit::{Actor, AuditAction, AuditEntry, AuditRecord};
use crate::changes::guarded;
use crate::check::check;
use crate::digest::DIGEST_BYTES;
use crate::postgres::sweep::ends_of_chains;
use crate::rows;
use crate::scratch::go_on;
use crate::vault::VaultReader;

#[test]
fn a_chain_that_was_shortened_with_its_end_is_found_by_a_record_of_another_one() {
    let Some(world) = World::new("chains_shortened") else { return };
    let [one, other] = [world.host(), world.host()];
    let workspace = one.create_workspace("w").unwrap().id;
    one.put(workspace, "a", "value").unwrap();
    one.put(workspace, "b", "value").unwrap();
    let newest =
        "SELECT encode(chain, 'hex'), seq, encode(body, 'hex') FROM audit ORDER BY position DESC LIMIT 1";
    let newest = world.sql(newest).remove(0);
    let [Some(chain), Some(seq), Some(body)] = &newest[..] else { panic!("{newest:?}") };
    let chains = world.runtime.block_on(ends_of_chains(&world.session)).unwrap();
    assert_eq!(chains[chain].to_string(), *seq);
    let entry = AuditEntry { actor: Actor::System, action: AuditAction::ChainsWitnessed { chains } };
    other.queues.push_audit(entry).unwrap();
    other.make(None, guarded([], |_| Ok(()))).unwrap();
    let problems = || {
        let view = VaultReader::new(world.keys.clone()).view(other.engine.state().unwrap());
        check(&view, (0, [0; DIGEST_BYTES]), &mut go_on).unwrap().problems
    };
    assert_eq!(problems(), Vec::<String>::new());
    let record: AuditRecord = rows::decode_body(&crate::hex::decode(body).unwrap()).unwrap();
    let previous = crate::hex::encode(&record.previous);
    world.sql(&format!(
        "DELETE FROM audit WHERE chain = decode('{chain}', 'hex') AND seq = {seq}; \
         UPDATE chain SET seq = {seq} - 1, head = decode('{previous}', 'hex') WHERE id = decode('{chain}', 'hex')"
    ));
    let found = problems();
    assert!(matches!(&found[..], [one] if one.contains("another chain saw it at")), "{found:?}");
    world.sql(&format!(
        "DELETE FROM audit WHERE chain = decode('{chain}', 'hex'); \
                        DELETE FROM chain WHERE id = decode('{chain}', 'hex')"
    ));
    let found = problems();
    assert!(matches!(&found[..], [one] if one.contains("ends at 0")), "{found:?}");
}
